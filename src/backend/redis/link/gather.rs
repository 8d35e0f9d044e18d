//! Calls that are ready together go out together, in one script call: see [`crate::scripts::batch`].
//!
//! A call that finds none under way goes out at once. Those that come while others are under way are gathered until
//! every task that was ready has run (on the worker that sends), and go out in their order. (The pause of Nagle's
//! algorithm, RFC 896, ends with an acknowledgement, which comes a round trip later.)
//!
//! The order of the calls on one lock counts: an asking that came behind the leaving of its ticket would bring a hold
//! that nobody knows of, and those who wait are to queue as they came. A batch may leave calls undone, which go out again.
//! So
//! * one task sends, and a call goes out past it only where nobody waits on its lock;
//! * a batch has one call of each lock at most: of several that are ready each goes out by itself;
//! * a call on a lock that a batch under way is about waits for its end, and goes out behind what that has left undone;
//! * all of that is decided by [`State`], in one section for each event.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Notify, oneshot};
use tokio::task::unconstrained;

use super::Shared;
use super::call::{self, Resend};
use crate::backend::{Answer, Failure};
use crate::clock::Moment;
use crate::scripts::{BATCH_MICROS, BATCH_MOST, Call, batch, outcomes};
use crate::sync::{Arc, Mutex, Ordering, lock};

/// How long batches stay as small as the last one that was not carried through had to be.
const SMALL_FOR: Duration = Duration::from_secs(1);
/// How many go out before answers are looked at again.
const AT_ONCE: usize = 32;

/// What waits to go out, and what has gone out.
#[derive(Debug, Default)]
pub struct Gather {
    state: Mutex<State>,
    /// Something is ready.
    called: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What is to go out.
    ready: VecDeque<Waiting>,
    locks: BTreeMap<LockId, About>,
    under_way: usize,
    /// The task is about to send, or sends, what is ready.
    is_sending: bool,
    /// The task is gone.
    has_ended: bool,
    /// How many calls a batch may have at most, until then.
    small: Option<(usize, Moment)>,
}

/// A lock, by the hash of its key: that two share one costs them a pause, and no more.
type LockId = u64;

/// What is known of a lock.
#[derive(Debug, Default)]
struct About {
    ready: usize,
    is_in_batch: bool,
    /// What waits for the end of the batch that is about it.
    held: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    call: Call,
    lock: LockId,
    timeout: Duration,
    deadline: Moment,
    answer: oneshot::Sender<Answer>,
}

/// Sends `call`, by itself or with others.
pub async fn call(shared: &Arc<Shared>, call: Call, timeout: Duration) -> Answer {
    let began = shared.clock.now();
    let deadline = began.plus(timeout);
    let entered = lock(&shared.gather.state).enter(call, timeout, deadline);
    let (answered, is_held) = match entered {
        Entered::Alone(call) => {
            let _under_way = UnderWay(shared);
            return alone(shared, &call, deadline).await;
        }
        Entered::Ready { answered, is_first } => {
            if is_first {
                shared.gather.called.notify_one();
            }
            (answered, false)
        }
        Entered::Held(answered) => (answered, true),
    };
    let unknown = |detail: &str| failed(shared, began, Failure::Unknown(detail.to_owned()));
    // Where its sending was dropped, it was with the task.
    let answered = answered.map(|answer| answer.unwrap_or_else(|_| unknown("the connection was closed")));
    if !is_held {
        return answered.await;
    }
    // The batch that it waits for may take longer than it has.
    tokio::select! {
        biased;
        answer = answered => answer,
        () = shared.clock.sleep_until(deadline) => unknown("it waited for others of its lock, and was not sent in time"),
    }
}

fn alone(shared: &Shared, call: &Call, deadline: Moment) -> impl Future<Output = Answer> {
    // In a box of its own, for it is large: those that wait for a batch have none.
    Box::pin(call::call(shared, call, deadline, Resend::AfterNoscript))
}

fn failed(shared: &Shared, began: Moment, failure: Failure) -> Answer {
    let (received, epoch) = (shared.clock.now(), shared.epoch.load(Ordering::Relaxed));
    Answer { outcome: Err(failure), sent: began, received, epoch }
}

#[derive(Debug)]
enum Entered {
    /// It goes out at once, and is counted.
    Alone(Call),
    Ready {
        answered: oneshot::Receiver<Answer>,
        is_first: bool,
    },
    Held(oneshot::Receiver<Answer>),
}

impl State {
    fn enter(&mut self, call: Call, timeout: Duration, deadline: Moment) -> Entered {
        let is_idle = self.under_way == 0 && !self.is_sending;
        let lock = if is_idle || self.has_ended { None } else { call.keys.get(0).map(lock_id) };
        // What goes alone anyway need not wait for the task, save behind others of its lock.
        let Some(lock) = lock.filter(|lock| call.is_batched() || self.locks.contains_key(lock)) else {
            self.under_way += 1;
            return Entered::Alone(call);
        };
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { call, lock, timeout, deadline, answer };
        let about = self.locks.entry(lock).or_default();
        if about.is_in_batch {
            about.held.push(waiting);
            return Entered::Held(answered);
        }
        about.ready += 1;
        self.ready.push_back(waiting);
        Entered::Ready { answered, is_first: !std::mem::replace(&mut self.is_sending, true) }
    }

    /// What goes out next, one call or several of as many locks; nothing is left where there is none.
    fn next(&mut self, most: usize, now: Moment) -> Vec<Waiting> {
        let most = match self.small {
            Some((small, until)) if now < until => most.min(small),
            _ => most,
        };
        let mut run: Vec<Waiting> = Vec::new();
        while let Some(next) = self.ready.front() {
            let goes = run.first().is_none_or(|first| {
                // One that has less time than others would end theirs, too.
                let suits = first.timeout == next.timeout && first.call.goes_with(&next.call);
                suits && run.len() < most && first.deadline > now && self.is_only(first) && self.is_only(next)
            });
            if !goes {
                break;
            }
            run.extend(self.ready.pop_front());
        }
        let is_in_batch = run.len() > 1;
        for Waiting { lock, .. } in &run {
            let about = self.locks.get_mut(lock).expect("it was ready");
            about.ready -= 1;
            about.is_in_batch = is_in_batch;
            if !is_in_batch && about.ready == 0 {
                self.locks.remove(lock);
            }
        }
        self.under_way += usize::from(!run.is_empty());
        self.is_sending = !run.is_empty();
        run
    }

    /// Whether no other call on its lock is ready.
    fn is_only(&self, one: &Waiting) -> bool {
        self.locks.get(&one.lock).is_some_and(|about| about.ready == 1)
    }

    /// A batch about these locks has ended, and has left these calls undone: they go out again before all others, and
    /// what has waited for it behind them. Returns whether somebody has to call the task.
    fn end_batch(&mut self, locks: &[LockId], undone: Vec<Waiting>) -> bool {
        // Of each lock there is one in the batch, so what was held is behind it wherever that stands.
        let held = locks.iter().filter_map(|lock| self.locks.remove(lock)).flat_map(|about| about.held);
        let again: Vec<Waiting> = undone.into_iter().chain(held).collect();
        for one in again.into_iter().rev() {
            self.locks.entry(one.lock).or_default().ready += 1;
            self.ready.push_front(one);
        }
        !self.ready.is_empty() && !std::mem::replace(&mut self.is_sending, true)
    }
}

fn lock_id(key: &str) -> LockId {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// One of what has gone out.
struct UnderWay<'a>(&'a Shared);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        lock(&self.0.gather.state).under_way -= 1;
    }
}

/// Sends what is ready, until it is dropped.
pub fn run(shared: Arc<Shared>) -> impl Future<Output = ()> {
    // From now on, and not from its first step.
    let ended = Ended(shared);
    async move {
        let shared = &*ended.0;
        let mut under_way = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                _ = under_way.next(), if !under_way.is_empty() => continue,
                () = shared.gather.called.notified() => {}
            }
            // Behind all that is ready to run.
            tokio::task::yield_now().await;
            let mut is_done = false;
            for _ in 0..AT_ONCE {
                let Some(run) = next(shared) else {
                    is_done = true;
                    break;
                };
                // Its first step sends it, and the next one comes behind it: it must not end for want of budget.
                let mut sending = Box::pin(unconstrained(send(shared, run)));
                if sending.as_mut().now_or_never().is_none() {
                    under_way.push(sending);
                }
            }
            if !is_done {
                shared.gather.called.notify_one();
            }
        }
    }
}

/// What goes out next; where there is nothing, who comes next calls the task, in one section with the look.
fn next(shared: &Shared) -> Option<Vec<Waiting>> {
    let now = shared.clock.now();
    let by_text = shared.ready().is_some_and(|ready| ready.by_text.load(Ordering::Relaxed));
    let run = lock(&shared.gather.state).next(if by_text { 1 } else { BATCH_MOST }, now);
    (!run.is_empty()).then_some(run)
}

/// The end of the task: what it has not sent never is, and what comes later goes out by itself.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut state = lock(&self.0.gather.state);
        state.has_ended = true;
        let (ready, locks) = (std::mem::take(&mut state.ready), std::mem::take(&mut state.locks));
        drop(state);
        let now = self.0.clock.now();
        for Waiting { answer, .. } in
            ready.into_iter().chain(locks.into_values().flat_map(|about| about.held))
        {
            let _ = answer.send(failed(&self.0, now, Failure::NotSent));
        }
    }
}

async fn send(shared: &Shared, mut run: Vec<Waiting>) {
    let _under_way = UnderWay(shared);
    if run.len() == 1 {
        let Waiting { call, deadline, answer, .. } = run.remove(0);
        let _ = answer.send(alone(shared, &call, deadline).await);
        return;
    }
    let batch = batch(run.iter().map(|one| &one.call), BATCH_MICROS);
    let Answer { outcome, sent, received, epoch } =
        call::call(shared, &batch, run[0].deadline, Resend::Never).await;
    let (outcomes, has_failed) = match outcome {
        Ok(reply) => {
            let (replies, has_failed) = outcomes(reply, run.len());
            (replies.into_iter().map(|reply| reply.map(Ok)).collect(), has_failed)
        }
        // None of them has run.
        Err(Failure::Server(_)) => (vec![None; run.len()], true),
        Err(failure) => (vec![Some(Err(failure)); run.len()], false),
    };
    let locks: Vec<LockId> = run.iter().map(|one| one.lock).collect();
    let (mut done, mut undone) = (Vec::with_capacity(run.len()), Vec::new());
    for (one, outcome) in run.into_iter().zip(outcomes) {
        match outcome {
            Some(outcome) => done.push((one.answer, outcome)),
            None => undone.push(one),
        }
    }
    let calls_task = {
        let mut state = lock(&shared.gather.state);
        if !undone.is_empty() {
            // What has failed goes out by itself, and hears for itself what is wrong.
            let most = if has_failed { 1 } else { done.len().max(1) };
            state.small = Some((most, received.plus(SMALL_FOR)));
        }
        state.end_batch(&locks, undone)
    };
    if calls_task {
        shared.gather.called.notify_one();
    }
    for (answer, outcome) in done {
        let _ = answer.send(Answer { outcome, sent, received, epoch });
    }
}

#[cfg(all(test, not(lockwright_loom)))]
mod tests {
    use super::*;
    use crate::name::{LockKeys, Namespace};
    use crate::scripts::{Inspect, Kind, Leave, Terms};
    use crate::ticket::{ClientId, Tickets};

    const LONG: Duration = Duration::from_secs(1);

    struct Scene {
        state: State,
        tickets: Tickets,
        answers: Vec<oneshot::Receiver<Answer>>,
        now: Moment,
    }

    impl Scene {
        /// Something is under way already.
        fn new() -> Self {
            let state = State { under_way: 1, ..State::default() };
            let now = Moment::ORIGIN.plus(Duration::from_secs(60));
            Self { state, tickets: Tickets::new(ClientId::random()), answers: Vec::new(), now }
        }

        fn call(&self, lock: &str) -> Call {
            let keys = &LockKeys::new(&Namespace::default(), lock).unwrap();
            let terms = Terms { claim_millis: 1, deadline_millis: 1, sharded: false, counted: true };
            let (ticket, kind) = (self.tickets.next(), Kind::Reentrant);
            Leave { keys, kind, ticket, next: None, deaf: false, terms }.call()
        }

        /// Returns whether it is held.
        fn send(&mut self, lock: &str, timeout: Duration) -> bool {
            let call = self.call(lock);
            let deadline = self.now.plus(timeout);
            let (answered, is_held) = match self.state.enter(call, timeout, deadline) {
                Entered::Alone(_) => panic!("something is under way"),
                Entered::Ready { answered, .. } => (answered, false),
                Entered::Held(answered) => (answered, true),
            };
            self.answers.push(answered);
            is_held
        }

        fn send_all(&mut self, locks: &[&str]) {
            for lock in locks {
                assert!(!self.send(lock, LONG), "{lock} is held");
            }
        }

        fn next(&mut self) -> Vec<Waiting> {
            self.state.next(BATCH_MOST, self.now)
        }

        /// The locks of each run until nothing is ready.
        fn runs(&mut self) -> Vec<Vec<String>> {
            std::iter::from_fn(|| Some(self.next()).filter(|run| !run.is_empty()))
                .map(|run| locks(&run))
                .collect()
        }

        fn end(&mut self, run: &[Waiting], undone: Vec<Waiting>) -> bool {
            let ids: Vec<LockId> = run.iter().chain(&undone).map(|one| one.lock).collect();
            self.state.end_batch(&ids, undone)
        }
    }

    fn locks(run: &[Waiting]) -> Vec<String> {
        run.iter().map(|one| one.call.keys[0].trim_matches(['l', 'w', ':', '{', '}']).to_owned()).collect()
    }

    #[test]
    fn a_batch_has_one_call_of_each_lock_and_the_order_stays() {
        let mut scene = Scene::new();
        scene.send_all(&["a", "b", "c", "d", "c", "e", "f"]);
        let mut runs = scene.runs();
        assert_eq!(runs, [vec!["a", "b"], vec!["c"], vec!["d", "c", "e", "f"]]);
        assert!(!scene.state.is_sending);
        let many: Vec<String> = (0..2 * BATCH_MOST + 1).map(|number| format!("lock {number}")).collect();
        scene.send_all(&many.iter().map(String::as_str).collect::<Vec<_>>());
        runs = scene.runs();
        assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [BATCH_MOST, BATCH_MOST, 1]);
    }

    #[test]
    fn what_has_other_terms_or_another_timeout_goes_apart() {
        let mut scene = Scene::new();
        scene.send("a", LONG);
        scene.send("b", LONG / 2);
        scene.send("c", LONG / 2);
        assert_eq!(scene.runs(), [vec!["a"], vec!["b", "c"]]);
        // A call that has run out of time would take the others' from them.
        scene.send("d", LONG);
        scene.now = scene.now.plus(LONG);
        scene.send("e", LONG);
        assert_eq!(scene.runs(), [["d"], ["e"]]);
    }

    /// Fails where a later call on a lock overtakes one that its batch has left undone, or that waited for its end.
    #[test]
    fn what_is_left_undone_comes_first_and_what_waited_behind_it() {
        let mut scene = Scene::new();
        scene.send_all(&["a", "b", "c"]);
        let mut run = scene.next();
        assert!(scene.next().is_empty());
        scene.send_all(&["x"]);
        assert!(scene.send("b", LONG) && scene.send("c", LONG) && scene.send("b", LONG));
        let undone: Vec<Waiting> = run.drain(1..).collect();
        let first: Vec<LockId> = undone.iter().map(|one| one.lock).collect();
        assert!(!scene.end(&run, undone), "it is about to send x");
        // A new one on a lock of the batch is behind those that waited.
        scene.send_all(&["b"]);
        let order: Vec<String> = scene.runs().concat();
        assert_eq!(order, ["b", "c", "b", "b", "c", "x", "b"]);
        assert_eq!(first.len(), 2);
    }

    #[test]
    fn a_batch_that_ends_calls_the_task_where_nobody_else_does() {
        let mut scene = Scene::new();
        scene.send_all(&["a", "b"]);
        let run = scene.next();
        assert!(scene.next().is_empty() && scene.send("a", LONG));
        assert!(scene.end(&run, Vec::new()));
        assert_eq!(scene.runs(), [["a"]]);
        assert!(!scene.end(&[], Vec::new()));
    }

    #[test]
    fn what_goes_alone_anyway_waits_only_behind_its_own_lock() {
        let mut scene = Scene::new();
        let inspect =
            |lock: &str| Inspect { keys: &LockKeys::new(&Namespace::default(), lock).unwrap() }.call();
        scene.send_all(&["a", "b"]);
        let deadline = scene.now.plus(LONG);
        assert!(matches!(scene.state.enter(inspect("c"), LONG, deadline), Entered::Alone(_)));
        assert!(matches!(scene.state.enter(inspect("a"), LONG, deadline), Entered::Ready { .. }));
        assert_eq!(scene.runs(), [["a"], ["b"], ["a"]]);
    }

    #[test]
    fn batches_stay_small_for_a_while() {
        let mut scene = Scene::new();
        let until = scene.now.plus(SMALL_FOR);
        scene.state.small = Some((2, until));
        scene.send_all(&["a", "b", "c"]);
        assert_eq!(scene.runs().iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        scene.now = until;
        scene.send_all(&["d", "e", "f"]);
        assert_eq!(scene.runs().iter().map(Vec::len).collect::<Vec<_>>(), [3]);
    }

    /// Fails where a lock that nobody asks for any more is still known.
    #[test]
    fn nothing_is_kept_of_what_has_gone() {
        let mut scene = Scene::new();
        scene.send_all(&["a", "b", "c", "c"]);
        while let run = scene.next()
            && !run.is_empty()
        {
            if run.len() > 1 {
                scene.end(&run, Vec::new());
            }
        }
        assert!(scene.state.locks.is_empty() && scene.state.ready.is_empty());
    }
}
