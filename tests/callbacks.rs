//! Code of the user that the library calls, and that calls the library back: wakers and log subscribers.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use lockwright::{Client, Engine, Lease, LossReason, Lost};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::support::logs;
use crate::support::time::{PATIENCE, soon};

/// Runs `body` as a task, on a runtime and a thread of its own, whose time is paused; panics where it does not end.
fn ends<F: Future<Output = ()> + 'static>(body: impl FnOnce() -> F + Send + 'static) {
    let (done, end) = mpsc::channel();
    #[allow(clippy::disallowed_methods, reason = "a thread that hangs must not take the test with it")]
    let thread = std::thread::spawn(move || {
        let runtime =
            Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        let tasks = LocalSet::new();
        let task = tasks.spawn_local(body());
        tasks.block_on(&runtime, task).expect("it does not panic");
        done.send(()).expect("the test waits");
    });
    match end.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        // Ended, or panicked: then this says why.
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Calls the client as soon as it is called, and when it goes.
struct Caller {
    client: Client,
    lost: Option<Lost>,
    calls: Arc<AtomicUsize>,
}

impl Caller {
    fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        // A new wait, which is dropped at once; a look at the client, and at the hold.
        let mut wait = Box::pin(self.client.lock("elsewhere").lock());
        let _ = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(wait);
        let _ = format!("{:?} {:?}", self.client, self.lost);
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.call();
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.call();
    }
}

/// Makes wakers that call the client, and counts their calls.
struct Callers {
    client: Client,
    lost: Option<Lost>,
    calls: Arc<AtomicUsize>,
}

impl Callers {
    fn new(client: &Client, lost: Option<Lost>) -> Self {
        Self { client: client.clone(), lost, calls: Arc::default() }
    }

    /// Polls with a waker that nobody else has, so that whoever drops it ends it.
    fn poll<F: Future>(&self, future: std::pin::Pin<&mut F>) {
        let (client, lost, calls) = (self.client.clone(), self.lost.clone(), self.calls.clone());
        let waker = Waker::from(Arc::new(Caller { client, lost, calls }));
        assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

/// Fails where the books are locked while a waker is dropped.
#[test]
fn a_waiters_waker_may_call_the_client() {
    ends(|| async {
        let engine = Engine::new();
        let (client, other) = (Client::embedded_on(&engine), Client::embedded_on(&engine));
        let callers = Callers::new(&client, None);
        let held = other.lock("a").lock().await.expect("it is free");
        let mut wait = Box::pin(client.lock("a").lock());
        callers.poll(wait.as_mut());
        // The second takes the first one's place.
        callers.poll(wait.as_mut());
        assert_eq!(callers.calls(), 1);
        drop(wait);
        assert_eq!(callers.calls(), 2);

        let mut wait = Box::pin(client.lock("a").lock());
        callers.poll(wait.as_mut());
        let before = callers.calls();
        held.unlock().await.expect("it is held");
        // Woken by the grant, and dropped after it.
        soon("the grant", async {
            while callers.calls() < before + 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        drop(soon("the lock", wait).await.expect("it is granted"));
    });
}

/// As above, for a place in the queue of a fair lock.
#[test]
fn a_places_waker_may_call_the_client() {
    ends(|| async {
        let client = Client::embedded();
        let callers = Callers::new(&client, None);
        let held = client.fair_lock("a").lock().await.expect("it is free");
        let mut place = client.fair_lock("a").queue().await.expect("there is a queue");
        {
            let mut step = pin!(place.next());
            callers.poll(step.as_mut());
            callers.poll(step.as_mut());
            assert_eq!(callers.calls(), 1);
        }
        drop(place);
        assert_eq!(callers.calls(), 2);
        drop(held);
    });
}

/// Fails where a hold is locked while a waker is dropped.
#[test]
fn a_watchers_waker_may_look_at_the_hold() {
    ends(|| async {
        let client = Client::embedded();
        let held = client.lock("a").with_max_hold(Duration::from_secs(1)).lock().await.expect("it is free");
        let callers = Callers::new(&client, Some(held.lost()));
        let mut lost = Box::pin(held.lost());
        callers.poll(lost.as_mut());
        callers.poll(lost.as_mut());
        assert_eq!(callers.calls(), 1);
        assert_eq!(soon("the end", held.lost()).await, LossReason::Expired);
        assert_eq!(callers.calls(), 3, "woken, and dropped");
        assert_eq!(lost.await, LossReason::Expired);
    });
}

/// A subscriber that calls the client with each line that it is told.
struct Subscriber(Caller);

impl tracing::Subscriber for Subscriber {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("lockwright::local")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.call();
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Fails where the books are locked while a line is logged.
#[test]
fn a_subscriber_may_call_the_client() {
    ends(|| async {
        let client = Client::embedded();
        let calls = Arc::<AtomicUsize>::default();
        let lock = client.lock("a").with_lease(Lease::renewed(Duration::from_secs(1)));
        let held = lock.lock().await.expect("it is free");
        let caller = Caller { client: client.clone(), lost: Some(held.lost()), calls: calls.clone() };
        let logging = logs::subscribe(Subscriber(caller));
        // Waiting for oneself is told after one lease.
        assert!(lock.try_lock_for(Duration::from_secs(3)).await.expect("there is a server").is_none());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        // So is a loss.
        client.force_release("a", held.token()).await.expect("there is a server");
        assert_eq!(soon("the loss", held.lost()).await, LossReason::TakenByForce);
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        drop(logging);
    });
}
