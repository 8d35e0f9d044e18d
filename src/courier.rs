//! The courier of a client: whatever is handed to it is carried through, though its caller is gone.
//!
//! A user's future never owns a command in flight. Dropping such a future would neither recall the command nor
//! hear its answer, and a hold would be left that nobody knows of.
//!
//! The first step of a parcel, which sends its command or gives it its place among those that go out together, is made by
//! whoever has handed it in on the client's own runtime: to wake a task for it costs more than the step. It is no part of
//! the caller's future all the same. From its first wait on it belongs to the one task of the courier, which goes on with
//! it whenever it is woken. Callers on another runtime, or on none, leave the first step to that task, too: a command has
//! timers, and to enter the client's runtime for them panics on a thread that ends, and inside of a runtime that ends.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::watch;

use crate::backend::Pending;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::mutant::{self, Mutant};
use crate::sync::{Arc, Mutex, MutexGuard, lock};

use parcel::Parcel;

mod parcel;

/// Where parcels are handed in.
#[derive(Clone, Debug)]
pub struct Courier(Arc<Bag>);

/// What the courier's task has of them. When it is dropped, all that is under way is dropped, and all that comes.
#[derive(Debug)]
pub struct Parcels(Arc<Bag>);

struct Bag {
    load: Mutex<Load>,
    /// Where the client lives, and its callers make first steps. They may be on another runtime, or on none.
    home: Option<Id>,
}

#[derive(Default)]
struct Load {
    /// What has not set out, in its order.
    posted: VecDeque<Pending<()>>,
    /// Somebody has the turn.
    busy: bool,
    under_way: BTreeMap<u64, Arc<Parcel>>,
    /// Those of them that the task is to go on with.
    woken: VecDeque<Arc<Parcel>>,
    last_number: u64,
    /// The task, where it waits.
    task: Option<Waker>,
    /// The task waits for the end of all that is under way.
    stopping: bool,
    /// What a parcel has panicked with on a caller's stack: the task goes on with that.
    panic: Option<Box<dyn Any + Send>>,
    /// The task is gone.
    ended: bool,
}

/// How many parcels a caller, or the task, takes in one go.
const AT_ONCE: usize = 32;

impl Courier {
    /// A courier for a client that lives on the present runtime.
    pub fn new() -> (Self, Parcels) {
        let bag = Arc::new(Bag { load: Mutex::default(), home: here() });
        (Self(bag.clone()), Parcels(bag))
    }

    /// Hands over what must be carried through, in this order. Never blocks, needs no runtime, and polls nothing: it may
    /// be called inside a section of the books, and [`set_out`](Self::set_out) behind it.
    pub fn post(&self, parcel: Pending<()>) {
        lock(&self.0.load).posted.push_back(parcel);
    }

    /// Makes the first step of all that was posted, in its order; nothing where somebody has the turn, who then goes on
    /// to that. Elsewhere than on the client's runtime, has the task do it. Behind the end of the task, drops it. Needs no
    /// runtime, and never panics.
    pub fn set_out(&self) {
        self.0.set_out();
    }
}

/// The present runtime, if any. None, too, where the thread ends.
fn here() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

/// The right to poll parcels, which one has at a time, a caller or the task. So commands have the order of the events
/// that they are of: none overtakes the leaving of its ticket between the look whether it is wanted and its sending.
struct Turn<'a> {
    bag: &'a Arc<Bag>,
    /// The last parcel was one that set out.
    has_set_out: bool,
    is_over: bool,
}

impl<'a> Turn<'a> {
    fn begin(bag: &'a Arc<Bag>, load: &mut Load) -> Option<Self> {
        let is_taken = std::mem::replace(&mut load.busy, true);
        // Not `then_some`: the turn that nobody has would be dropped, and end that of another.
        (!is_taken).then(|| Self { bag, has_set_out: false, is_over: false })
    }

    /// The next parcel: one that sets out or, for the task, by turns with those, one that was woken. Ends the turn where
    /// there is none, in one section with the look: what is posted behind it finds nobody at it.
    fn next(&mut self, task: Option<&Waker>) -> Option<Arc<Parcel>> {
        let mut load = lock(&self.bag.load);
        // However much is posted, answers are not kept waiting.
        if task.is_some()
            && std::mem::take(&mut self.has_set_out)
            && let Some(woken) = load.woken.pop_front()
        {
            return Some(woken);
        }
        // What is posted behind the end is left to whoever sets out with it.
        let posted = if load.ended { None } else { load.posted.pop_front() };
        let mut load = mutant::apart(&self.bag.load, load, Mutant::TurnEndedApart);
        if let Some(parcel) = posted {
            load.last_number += 1;
            let parcel = Arc::new(Parcel::new(self.bag.clone(), load.last_number, parcel));
            load.under_way.insert(parcel.number, parcel.clone());
            self.has_set_out = true;
            return Some(parcel);
        }
        let woken = task.and_then(|_| load.woken.pop_front());
        if woken.is_none() {
            (load.busy, self.is_over) = (false, true);
            let called = if load.calls_task() { load.task.take() } else { None };
            if task.is_some() {
                load.task = task.cloned();
            }
            drop(load);
            if let Some(called) = called {
                called.wake();
            }
        }
        woken
    }
}

impl Drop for Turn<'_> {
    /// What is left is the task's.
    fn drop(&mut self) {
        if !self.is_over {
            self.bag.call_task(|load| load.busy = false);
        }
    }
}

impl Bag {
    fn set_out(self: &Arc<Self>) {
        let is_home = self.home == here();
        let mut load = lock(&self.load);
        if load.ended {
            // Each caller drops its own: one who has the turn may have had its last look. Behind the section, for whoever
            // waits for one of them is woken by that; should that panic, it is of no concern to the caller.
            let unwanted = std::mem::take(&mut load.posted);
            drop(load);
            for parcel in unwanted {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(parcel)));
            }
            return;
        }
        if !is_home {
            return Self::call(load);
        }
        let Some(mut turn) = Turn::begin(self, &mut load) else { return };
        drop(load);
        for _ in 0..AT_ONCE {
            match turn.next(None) {
                Some(parcel) => parcel.set_out(),
                None => return,
            }
        }
    }

    /// Changes the load, and has the task look at it.
    fn call_task(&self, change: impl FnOnce(&mut Load)) {
        let mut load = lock(&self.load);
        change(&mut load);
        Self::call(load);
    }

    fn call(mut load: MutexGuard<'_, Load>) {
        let task = load.task.take();
        drop(load);
        if let Some(task) = task {
            task.wake();
        }
    }

    /// A parcel is to go on.
    fn wake(&self, parcel: Arc<Parcel>) {
        self.call_task(|load| {
            if !load.ended {
                load.woken.push_back(parcel);
            }
        });
    }

    /// A parcel has arrived.
    fn arrived(&self, number: u64) {
        // Whoever has the turn looks at what that leaves.
        lock(&self.load).under_way.remove(&number);
    }
}

impl Load {
    fn is_empty(&self) -> bool {
        self.posted.is_empty() && self.under_way.is_empty()
    }

    /// Whether the task has something to do once nobody has the turn.
    fn calls_task(&self) -> bool {
        !self.woken.is_empty() || self.stopping && self.is_empty()
    }
}

impl fmt::Debug for Bag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bag").field("under_way", &lock(&self.load).under_way.len()).finish_non_exhaustive()
    }
}

impl Parcels {
    /// Goes on with what was woken. Returns whether nothing is left to do; else the task is woken when there is.
    ///
    /// # Panics
    /// With what a parcel has panicked with, here or on a caller's stack.
    pub fn carry_on(&self, task: &Waker) -> bool {
        let mut load = lock(&self.0.load);
        if let Some(panic) = load.panic.take() {
            drop(load);
            std::panic::resume_unwind(panic);
        }
        let Some(mut turn) = Turn::begin(&self.0, &mut load) else {
            // Whoever has the turn calls the task behind it.
            load.task = Some(task.clone());
            return false;
        };
        drop(load);
        for _ in 0..AT_ONCE {
            match turn.next(Some(task)) {
                Some(parcel) => parcel.go_on(),
                None => return lock(&self.0.load).is_empty(),
            }
        }
        drop(turn);
        task.wake_by_ref();
        false
    }
}

impl Drop for Parcels {
    fn drop(&mut self) {
        let mut load = lock(&self.0.load);
        let left = (std::mem::take(&mut load.posted), std::mem::take(&mut load.woken), load.task.take());
        let under_way = std::mem::take(&mut load.under_way);
        let mut load = mutant::apart(&self.0.load, load, Mutant::EndedApart);
        // In the section in which all was taken: what comes behind it is dropped by whoever posts it.
        load.ended = true;
        drop(load);
        drop(left);
        under_way.into_values().for_each(|parcel| parcel.give_up());
    }
}

/// Runs until `stop` says so and everything that was posted before is carried through, for at most `patience` from
/// then on: whoever closes a client waits no longer for a silent server than others do.
pub async fn run(parcels: Parcels, stop: watch::Receiver<bool>, clock: Clock, patience: Duration) {
    let mut late = stop.clone();
    let late = async {
        let _ = late.wait_for(|&stopped| stopped).await;
        clock.sleep(patience).await;
    };
    tokio::select! {
        biased;
        () = carry(&parcels, stop) => {}
        () = late => {}
    }
}

async fn carry(parcels: &Parcels, mut stop: watch::Receiver<bool>) {
    let mut stop = pin!(async move { _ = stop.wait_for(|&stopped| stopped).await });
    let mut stopped = false;
    poll_fn(|context| {
        // Before the parcels: what was posted before the end is among them.
        if !stopped && stop.as_mut().poll(context).is_ready() {
            stopped = true;
            lock(&parcels.0.load).stopping = true;
        }
        match parcels.carry_on(context.waker()) && stopped {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

/// How long to wait before the next attempt: doubled each time, with jitter, so that the clients of a server that
/// comes back do not all call in the same instant.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(5);
    const LONGEST: Duration = Duration::from_millis(200);

    pub fn new() -> Self {
        Self { next: Self::FIRST }
    }

    pub fn next(&mut self, chance: &Chance) -> Duration {
        let pause = chance.jitter(self.next, 25);
        self.next = (self.next * 2).min(Self::LONGEST);
        pause
    }
}

#[cfg(all(test, not(lockwright_loom)))]
mod tests {
    use super::*;
    use crate::sync::{AtomicBool, AtomicU64, Ordering};
    use std::future::Future;
    use std::task::{Context, Wake};
    use tokio::runtime::Runtime;
    use tokio::sync::oneshot;

    type Journal = Arc<Mutex<Vec<&'static str>>>;

    fn note(journal: &Journal, what: &'static str) {
        lock(journal).push(what);
    }

    #[derive(Default)]
    struct Called(AtomicBool);

    impl Called {
        fn take(&self) -> bool {
            self.0.swap(false, Ordering::Relaxed)
        }
    }

    impl Wake for Called {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn poll(carrying: std::pin::Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
        carrying.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Fails where the end is seen before what was posted ahead of it: they come between two looks of one poll.
    #[test]
    fn what_is_posted_before_the_end_is_carried_through() {
        let rounds = 20_000;
        let carried = Arc::new(AtomicU64::new(0));
        let (hand_over, handed_over) = std::sync::mpsc::channel::<(Courier, watch::Sender<bool>)>();
        let poster = std::thread::spawn({
            let carried = carried.clone();
            move || {
                for (round, (courier, stop)) in handed_over.into_iter().enumerate() {
                    let carried = carried.clone();
                    let parcel = async move { _ = carried.fetch_add(1, Ordering::Relaxed) };
                    courier.post(Box::pin(parcel));
                    if round % 2 == 0 {
                        courier.set_out();
                    }
                    stop.send_replace(true);
                }
            }
        });
        for _ in 0..rounds {
            let (courier, parcels) = Courier::new();
            let (stop, stopped) = watch::channel(false);
            hand_over.send((courier.clone(), stop)).expect("the poster is there");
            let mut carrying = pin!(carry(&parcels, stopped));
            while poll(carrying.as_mut()).is_pending() {}
        }
        drop(hand_over);
        poster.join().expect("no panic");
        assert_eq!(carried.load(Ordering::Relaxed), rounds);
    }

    /// Fails where a caller that has used up its task's budget sends later than those behind it.
    #[tokio::test]
    async fn a_first_step_is_whole_whatever_its_caller_has_done() {
        use futures_util::FutureExt;
        use tokio::task::coop::consume_budget;

        let (courier, _parcels) = Courier::new();
        let journal = Journal::default();
        while consume_budget().now_or_never().is_some() {}
        let notes = journal.clone();
        courier.post(Box::pin(async move {
            consume_budget().await;
            note(&notes, "sent");
        }));
        courier.set_out();
        assert_eq!(*lock(&journal), ["sent"]);
    }

    /// Fails where a caller sends while the task is about to: what the task sends may be of a ticket that the caller's
    /// leaving gives back.
    #[test]
    fn nobody_sets_out_while_the_task_goes_on() {
        let (courier, parcels) = Courier::new();
        let journal = Journal::default();
        let (answer, answered) = oneshot::channel::<()>();
        let (inner, notes) = (courier.clone(), journal.clone());
        courier.post(Box::pin(async move {
            let _ = answered.await;
            let late = notes.clone();
            let caller = std::thread::spawn(move || {
                inner.post(Box::pin(async move { note(&late, "left") }));
                inner.set_out();
            });
            caller.join().expect("no panic");
            note(&notes, "sent again");
        }));
        courier.set_out();
        answer.send(()).expect("somebody waits");
        assert!(parcels.carry_on(Waker::noop()));
        assert_eq!(*lock(&journal), ["sent again", "left"]);
    }

    /// Fails where a task has to be woken for the first step, or where what a first step posts comes before what was
    /// posted ahead of it.
    #[test]
    fn the_first_steps_are_the_callers_and_in_order() {
        let (courier, parcels) = Courier::new();
        let journal = Journal::default();
        let (answer, answered) = oneshot::channel::<()>();
        let (inner, notes) = (courier.clone(), journal.clone());
        courier.post(Box::pin(async move {
            let late = notes.clone();
            inner.post(Box::pin(async move { note(&late, "third") }));
            inner.set_out();
            note(&notes, "first");
            let _ = answered.await;
            note(&notes, "answered");
        }));
        let notes = journal.clone();
        courier.post(Box::pin(async move { note(&notes, "second") }));
        assert!(lock(&journal).is_empty(), "posting polls nothing");
        courier.set_out();
        assert_eq!(*lock(&journal), ["first", "second", "third"]);
        // And the rest is the task's, which alone is woken for it.
        answer.send(()).expect("somebody waits");
        assert_eq!(lock(&journal).len(), 3);
        assert!(parcels.carry_on(Waker::noop()));
        assert_eq!(lock(&journal).last(), Some(&"answered"));
    }

    fn runtime() -> Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
    }

    /// Fails where the first step is made elsewhere than on the client's runtime, or where nobody is called to make it.
    #[test]
    fn elsewhere_the_first_step_is_left_to_the_task() {
        let (home, other) = (runtime(), runtime());
        let (courier, parcels) = home.block_on(async { Courier::new() });
        let journal = Journal::default();
        let send = |what| {
            let notes = journal.clone();
            courier.post(Box::pin(async move { note(&notes, what) }));
            courier.set_out();
        };
        let called = Arc::<Called>::default();
        let task = Waker::from(called.clone());
        parcels.carry_on(&task);
        other.block_on(async { send("from another runtime") });
        assert!(called.take(), "nobody is called");
        parcels.carry_on(&task);
        send("from none");
        assert!(called.take(), "nobody is called");
        home.block_on(async { send("from home") });
        // Who comes later to have the turn takes what was left before it: commands keep their order.
        assert_eq!(*lock(&journal), ["from another runtime", "from none", "from home"]);
    }

    /// Fails, by an abort, where setting out needs tokio's own variables of the thread: they may be gone before a guard.
    #[test]
    fn a_thread_that_ends_may_set_out() {
        struct Late(Option<Courier>);
        impl Drop for Late {
            fn drop(&mut self) {
                let courier = self.0.take().expect("it was kept");
                courier.post(Box::pin(std::future::ready(())));
                courier.set_out();
            }
        }
        thread_local! {
            static LATE: std::cell::RefCell<Late> = const { std::cell::RefCell::new(Late(None)) };
        }
        let (courier, parcels) = runtime().block_on(async { Courier::new() });
        let called = Arc::<Called>::default();
        parcels.carry_on(&Waker::from(called.clone()));
        let thread = std::thread::spawn(move || {
            LATE.with(|late| late.borrow_mut().0 = Some(courier));
            // Used later, so gone sooner.
            runtime().block_on(async {});
        });
        thread.join().expect("no panic");
        assert!(called.take(), "nobody is called");
        assert!(parcels.carry_on(Waker::noop()));
    }

    /// Fails where the first step is made in the context of its caller: a command has a timer.
    #[test]
    fn a_caller_needs_no_runtime() {
        let runtime = runtime();
        let (courier, parcels) = runtime.block_on(async { Courier::new() });
        let (stop, stopped) = watch::channel(false);
        let journal = Journal::default();
        let notes = journal.clone();
        let caller = std::thread::spawn(move || {
            courier.post(Box::pin(async move {
                Clock::boot().sleep(Duration::from_millis(1)).await;
                note(&notes, "slept");
            }));
            courier.set_out();
            stop.send_replace(true);
        });
        caller.join().expect("no panic");
        runtime.block_on(carry(&parcels, stopped));
        assert_eq!(*lock(&journal), ["slept"]);
    }

    /// Fails where a closing does not wait for what a caller has set out with.
    #[test]
    fn the_end_waits_for_what_is_under_way() {
        let (courier, parcels) = Courier::new();
        let (stop, stopped) = watch::channel(false);
        let (answer, answered) = oneshot::channel::<()>();
        courier.post(Box::pin(async move { _ = answered.await }));
        courier.set_out();
        let mut carrying = pin!(carry(&parcels, stopped));
        stop.send_replace(true);
        assert!(poll(carrying.as_mut()).is_pending());
        answer.send(()).expect("somebody waits");
        assert!(poll(carrying.as_mut()).is_ready());
    }

    /// Fails where what is under way outlives its task: whoever waits for it would wait for ever.
    #[test]
    fn what_is_under_way_ends_with_the_task() {
        let (courier, parcels) = Courier::new();
        let [(under_way, one), (posted, two), (late, three)] = [(); 3].map(|()| oneshot::channel::<()>());
        let never = |done: oneshot::Sender<()>| -> Pending<()> {
            Box::pin(async move {
                std::future::pending::<()>().await;
                drop(done);
            })
        };
        courier.post(never(under_way));
        courier.set_out();
        courier.post(never(posted));
        drop(parcels);
        courier.post(never(late));
        courier.set_out();
        for mut ended in [one, two, three] {
            assert_eq!(ended.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        }
    }

    /// Never ends; calls `then` when it is dropped.
    fn stuck(then: impl FnOnce() + Send + 'static) -> Pending<()> {
        struct Then<F: FnOnce()>(Option<F>);
        impl<F: FnOnce()> Drop for Then<F> {
            fn drop(&mut self) {
                self.0.take().into_iter().for_each(|then| then());
            }
        }
        let then = Then(Some(then));
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(then);
        })
    }

    /// Fails where one that has the turn takes, behind the end, what was posted while it dropped what had been.
    #[test]
    fn what_is_posted_by_the_end_of_another_ends_too() {
        let (courier, parcels) = Courier::new();
        drop(parcels);
        let (done, mut ended) = oneshot::channel::<()>();
        let inner = courier.clone();
        courier.post(stuck(move || {
            inner.post(stuck(move || drop(done)));
            inner.set_out();
        }));
        courier.set_out();
        assert_eq!(ended.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    /// Fails where what is posted while somebody has the turn is left to it for good, though it takes no more.
    #[test]
    fn what_is_posted_at_the_end_of_a_turn_ends_with_the_task() {
        let (courier, parcels) = Courier::new();
        for _ in 1..AT_ONCE {
            courier.post(Box::pin(std::future::ready(())));
        }
        let (done, mut ended) = oneshot::channel::<()>();
        let inner = courier.clone();
        courier.post(Box::pin(async move {
            drop(parcels);
            inner.post(stuck(move || drop(done)));
            inner.set_out();
        }));
        courier.set_out();
        assert_eq!(ended.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    /// Fails where a panic of what is dropped behind the end, of a user's waker perhaps, meets whoever has posted.
    #[test]
    fn a_panic_behind_the_end_is_nobodys() {
        let (courier, parcels) = Courier::new();
        drop(parcels);
        courier.post(stuck(|| panic!("on purpose")));
        courier.set_out();
    }

    /// Fails where a panic, of a user's waker perhaps, meets whoever happens to have posted, or the task goes on.
    #[test]
    fn a_panic_is_the_tasks() {
        let (courier, parcels) = Courier::new();
        courier.post(Box::pin(async { panic!("on purpose") }));
        courier.set_out();
        let carrying =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| parcels.carry_on(Waker::noop())));
        assert!(carrying.is_err());
    }

    /// Fails where an answer waits for as long as there is something to be sent.
    #[test]
    fn an_answer_does_not_wait_for_all_that_is_posted() {
        let (courier, parcels) = Courier::new();
        let journal = Journal::default();
        let (answer, answered) = oneshot::channel::<()>();
        let notes = journal.clone();
        courier.post(Box::pin(async move {
            let _ = answered.await;
            note(&notes, "answered");
        }));
        courier.set_out();
        answer.send(()).expect("somebody waits");
        for _ in 0..AT_ONCE {
            courier.post(Box::pin(std::future::ready(())));
        }
        parcels.carry_on(Waker::noop());
        assert_eq!(*lock(&journal), ["answered"]);
    }

    /// Fails where one caller sends for all the others for as long as they have something to send.
    #[test]
    fn a_caller_hands_on_what_is_too_much() {
        let (courier, parcels) = Courier::new();
        let sent = Arc::new(AtomicU64::new(0));
        let all = 3 * AT_ONCE as u64;
        for _ in 0..all {
            let sent = sent.clone();
            courier.post(Box::pin(async move { _ = sent.fetch_add(1, Ordering::Relaxed) }));
        }
        courier.set_out();
        assert_eq!(sent.load(Ordering::Relaxed), AT_ONCE as u64);
        while !parcels.carry_on(Waker::noop()) {}
        assert_eq!(sent.load(Ordering::Relaxed), all);
    }
}
