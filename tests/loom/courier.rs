//! Callers who set out with parcels, the one task that goes on with them, and whoever wakes them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use lockwright::internals::courier::Courier;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::{Flag, models};

models! {
    what_is_posted_sets_out, TurnEndedApart, "nobody has set out with it";
    a_wake_up_of_a_parcel_is_not_missed, ParkedApart, "nobody goes on with it";
    what_is_posted_at_the_end_ends, EndedApart, "it is kept for ever";
}

/// Two callers post and set out: all is sent then, each caller's in its order, for neither waits for the other.
fn what_is_posted_sets_out() {
    let (courier, parcels) = Courier::new();
    let sent = Arc::new(Mutex::new(Vec::new()));
    let is_polled = Arc::new(AtomicBool::new(false));
    let post = {
        let sent = sent.clone();
        move |courier: &Courier, number: u32| {
            let (sent, is_polled) = (sent.clone(), is_polled.clone());
            courier.post(Box::pin(async move {
                assert!(!is_polled.swap(true, Ordering::Relaxed), "two are polled at a time");
                sent.lock().expect("no panic").push(number);
                is_polled.store(false, Ordering::Relaxed);
            }));
        }
    };
    let other = thread::spawn({
        let (courier, post) = (courier.clone(), post.clone());
        move || {
            post(&courier, 1);
            courier.set_out();
        }
    });
    post(&courier, 2);
    post(&courier, 3);
    courier.set_out();
    other.join().expect("no panic");
    let sent = sent.lock().expect("no panic").clone();
    // Panics where one of them has.
    parcels.carry_on(Waker::noop());
    assert_eq!(sent.len(), 3, "nobody has set out with it: {sent:?}");
    assert!(sent == [1, 2, 3] || sent == [2, 1, 3] || sent == [2, 3, 1], "out of order: {sent:?}");
}

/// What a parcel waits for comes while it is polled, or before or after it: the task is called, and goes on with it.
fn a_wake_up_of_a_parcel_is_not_missed() {
    let (courier, parcels) = Courier::new();
    let task = Arc::<Flag>::default();
    parcels.carry_on(&Waker::from(task.clone()));
    let (answer, arrived) = (Arc::new(Mutex::new((false, None::<Waker>))), Arc::new(Mutex::new(false)));
    courier.post({
        let (answer, arrived) = (answer.clone(), arrived.clone());
        let wait = move |context: &mut Context<'_>| {
            let mut answer = answer.lock().expect("no panic");
            if answer.0 {
                *arrived.lock().expect("no panic") = true;
                return Poll::Ready(());
            }
            answer.1 = Some(context.waker().clone());
            Poll::Pending
        };
        Box::pin(poll_fn(wait))
    });
    let server = thread::spawn(move || {
        let mut answer = answer.lock().expect("no panic");
        answer.0 = true;
        let waker = answer.1.take();
        drop(answer);
        if let Some(waker) = waker {
            waker.wake();
        }
    });
    courier.set_out();
    server.join().expect("no panic");
    if task.0.load(Ordering::Relaxed) {
        parcels.carry_on(Waker::noop());
    }
    assert!(*arrived.lock().expect("no panic"), "nobody goes on with it");
}

/// The task ends while callers post and set out: nothing is left of what they have posted.
fn what_is_posted_at_the_end_ends() {
    let (courier, parcels) = Courier::new();
    let kept = Arc::new(());
    let caller = |courier: Courier| {
        let kept = kept.clone();
        move || {
            courier.post(Box::pin(async move {
                std::future::pending::<()>().await;
                drop(kept);
            }));
            courier.set_out();
        }
    };
    let callers = [thread::spawn(caller(courier.clone())), thread::spawn(caller(courier.clone()))];
    drop(parcels);
    for caller in callers {
        caller.join().expect("no panic");
    }
    assert_eq!(Arc::strong_count(&kept), 1, "it is kept for ever");
}
