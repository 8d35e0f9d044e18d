//! Many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;

use super::*;

const TASKS: usize = 1_000;
const LOCKS: usize = 10;
const CLIENTS: usize = 4;

/// What a lock guards: it sees by itself when two are inside, or when tokens do not rise.
#[derive(Default)]
struct Cell {
    inside: AtomicBool,
    last_token: AtomicU64,
    sections: AtomicU64,
}

impl Cell {
    async fn enter(&self, guard: &Guard) {
        assert!(!self.inside.swap(true, Ordering::SeqCst), "two are inside");
        let last = self.last_token.swap(guard.token(), Ordering::SeqCst);
        assert!(guard.token() > last, "token {} after {last}", guard.token());
        tokio::task::yield_now().await;
        assert!(guard.is_held());
        self.sections.fetch_add(1, Ordering::SeqCst);
        self.inside.store(false, Ordering::SeqCst);
    }
}

pub async fn a_thousand_tasks_never_overlap<D: Deployment>(on: &D) {
    let clients = join_all((0..CLIENTS).map(|_| on.client())).await;
    let cells: Arc<Vec<Cell>> = Arc::new((0..LOCKS).map(|_| Cell::default()).collect());
    let tasks = (0..TASKS).map(|task| {
        let name = task % LOCKS;
        let lock = clients[task / LOCKS % CLIENTS].lock(&format!("lock {name}"));
        let cells = cells.clone();
        tokio::spawn(async move {
            for round in 0..2 {
                let guard = lock.lock().await.expect("it is granted");
                cells[name].enter(&guard).await;
                if (task + round) % 3 == 0 {
                    drop(guard);
                } else {
                    guard.unlock().await.expect("it is held");
                }
            }
        })
    });
    for task in soon("all tasks", join_all(tasks)).await {
        task.expect("no panic");
    }
    for (name, cell) in cells.iter().enumerate() {
        assert_eq!(cell.sections.load(Ordering::SeqCst), (TASKS / LOCKS * 2) as u64);
        until_free(&clients[0], &format!("lock {name}")).await;
    }
}
