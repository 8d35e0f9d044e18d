//! Calls that are ready together go out together, in one script call: see [`crate::scripts::batch`].
//!
//! A call that finds none under way goes out at once. Those that come while others are under way are gathered until the
//! runtime has run every task that was ready, and go out in their order. No answer is waited for: where calls come one
//! by one, they go out one by one, and the round trip of one is not added to that of another. (The pause of Nagle's
//! algorithm, RFC 896, ends with an acknowledgement, which comes a round trip later.)
//!
//! The order of the calls on one lock counts: an asking that came behind the leaving of its ticket would bring a hold
//! that nobody knows of, and those who wait are to queue as they came. But what a batch does not carry out ends as
//! [`Failure::Deferred`], and is sent again, if it is still wanted, by whoever made the call. So
//! * one task sends, and a call goes out at once only where nobody waits for that;
//! * a batch is never sent twice, and has one call of each lock at most: of several that are ready each goes out by itself;
//! * a call on a lock that a batch under way is about waits for its answer, and is deferred, too.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Notify, oneshot};

use super::Shared;
use super::call::{self, Resend};
use crate::backend::{Answer, Failure, Value};
use crate::clock::Moment;
use crate::scripts::{BATCH_MICROS, BATCH_MOST, Call, batch, outcomes};
use crate::sync::{Arc, Mutex, Ordering, lock};

/// How long calls go out one by one once some that went out together were refused: each is then told why by itself.
const APART: Duration = Duration::from_secs(1);

/// What waits to go out together, and what has gone out.
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
    /// What waits for the answer to a batch that is about its lock.
    held: VecDeque<Waiting>,
    locks: BTreeMap<LockId, About>,
    under_way: usize,
    /// The task is about to send, or sends, what is ready.
    is_sending: bool,
    /// The task is gone.
    has_ended: bool,
    apart_until: Option<Moment>,
}

/// A lock, by the hash of its key: that two share one costs them a pause, and no more.
type LockId = u64;

/// What is known of a lock.
#[derive(Debug, Default)]
struct About {
    ready: usize,
    is_in_batch: bool,
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
    if !call.is_batched() {
        return alone(shared, &call, deadline).await;
    }
    let entered = lock(&shared.gather.state).enter(call, timeout, deadline);
    match entered {
        Entered::Alone(call) => {
            let _under_way = UnderWay { shared, locks: Vec::new() };
            alone(shared, &call, deadline).await
        }
        Entered::Waits { answered, is_first } => {
            if is_first {
                shared.gather.called.notify_one();
            }
            let closed = || Failure::Unknown("the connection was closed".into());
            answered.await.unwrap_or_else(|_| unsent(shared, began, closed()))
        }
    }
}

fn alone(shared: &Shared, call: &Call, deadline: Moment) -> impl Future<Output = Answer> {
    // In a box of its own, for it is large: those that wait for a batch have none.
    Box::pin(call::call(shared, call, deadline, Resend::AfterNoscript))
}

fn unsent(shared: &Shared, began: Moment, failure: Failure) -> Answer {
    let (received, epoch) = (shared.clock.now(), shared.epoch.load(Ordering::Relaxed));
    Answer { outcome: Err(failure), sent: began, received, epoch }
}

enum Entered {
    /// It goes out at once, and is counted.
    Alone(Call),
    Waits {
        answered: oneshot::Receiver<Answer>,
        is_first: bool,
    },
}

impl State {
    fn enter(&mut self, call: Call, timeout: Duration, deadline: Moment) -> Entered {
        if self.has_ended || self.under_way == 0 && !self.is_sending {
            self.under_way += 1;
            return Entered::Alone(call);
        }
        let mut hasher = DefaultHasher::new();
        call.keys[0].hash(&mut hasher);
        let lock = hasher.finish();
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { call, lock, timeout, deadline, answer };
        let about = self.locks.entry(lock).or_default();
        if about.is_in_batch {
            self.held.push_back(waiting);
            return Entered::Waits { answered, is_first: false };
        }
        about.ready += 1;
        self.ready.push_back(waiting);
        let is_first = !std::mem::replace(&mut self.is_sending, true);
        Entered::Waits { answered, is_first }
    }

    /// What goes out next: one call, or several of as many locks.
    fn next(&mut self, is_apart: bool) -> Vec<Waiting> {
        let mut run: Vec<Waiting> = Vec::new();
        while let Some(next) = self.ready.front() {
            let goes = match run.first() {
                None => true,
                Some(first) => {
                    // One that has less time than others would end theirs, too.
                    let suits = first.timeout == next.timeout && first.call.goes_with(&next.call);
                    suits && !is_apart && run.len() < BATCH_MOST && self.is_only(first) && self.is_only(next)
                }
            };
            if !goes {
                break;
            }
            run.extend(self.ready.pop_front());
        }
        let is_batch = run.len() > 1;
        for Waiting { lock, .. } in &run {
            let about = self.locks.get_mut(lock).expect("it was ready");
            about.ready -= 1;
            about.is_in_batch = is_batch;
            if !is_batch && about.ready == 0 {
                self.locks.remove(lock);
            }
        }
        self.under_way += usize::from(!run.is_empty());
        run
    }

    /// Whether no other call on its lock is ready.
    fn is_only(&self, one: &Waiting) -> bool {
        self.locks.get(&one.lock).is_some_and(|about| about.ready == 1)
    }

    /// A batch that was about these locks is answered. Returns what has waited for that, in its order.
    fn end_batch(&mut self, locks: &[LockId]) -> Vec<Waiting> {
        for lock in locks {
            self.locks.remove(lock);
        }
        let (ended, held): (Vec<_>, Vec<_>) = self.held.drain(..).partition(|one| locks.contains(&one.lock));
        self.held = held.into();
        ended
    }
}

/// Something that has gone out: by itself, or a batch that is about these locks.
struct UnderWay<'a> {
    shared: &'a Shared,
    locks: Vec<LockId>,
}

impl UnderWay<'_> {
    /// Has what waited for it sent again.
    fn end(&mut self) {
        if self.locks.is_empty() {
            return;
        }
        let ended = lock(&self.shared.gather.state).end_batch(&std::mem::take(&mut self.locks));
        let now = self.shared.clock.now();
        for Waiting { answer, .. } in ended {
            let _ = answer.send(unsent(self.shared, now, Failure::Deferred));
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.end();
        lock(&self.shared.gather.state).under_way -= 1;
    }
}

/// Sends what is ready, until it is dropped.
pub async fn run(shared: Arc<Shared>) {
    let _ended = Ended(&shared);
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = shared.gather.called.notified() => {}
            _ = under_way.next(), if !under_way.is_empty() => continue,
        }
        // Behind all that is ready to run.
        tokio::task::yield_now().await;
        while let Some(run) = next(&shared) {
            let mut sending = Box::pin(send(&shared, run));
            // Its first step sends it: the next one comes behind it.
            if sending.as_mut().now_or_never().is_none() {
                under_way.push(sending);
            }
        }
    }
}

/// What goes out next; where there is nothing, who comes next calls the task, in one section with the look.
fn next(shared: &Shared) -> Option<Vec<Waiting>> {
    let now = shared.clock.now();
    let by_text = shared.ready().is_some_and(|ready| ready.by_text.load(Ordering::Relaxed));
    let mut state = lock(&shared.gather.state);
    let is_apart = by_text || state.apart_until.is_some_and(|until| now < until);
    let run = state.next(is_apart);
    state.is_sending = !run.is_empty();
    state.is_sending.then_some(run)
}

/// The end of the task: what it has not sent ends, and what comes later goes out by itself.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.gather.state);
        state.has_ended = true;
        let left = (std::mem::take(&mut state.ready), std::mem::take(&mut state.held));
        drop(state);
        drop(left);
    }
}

async fn send(shared: &Shared, run: Vec<Waiting>) {
    let deadline = run[0].deadline;
    let locks = if run.len() > 1 { run.iter().map(|one| one.lock).collect() } else { Vec::new() };
    let mut under_way = UnderWay { shared, locks };
    let (calls, mut answers): (Vec<Call>, Vec<_>) = run.into_iter().map(|one| (one.call, one.answer)).unzip();
    if let [call] = &calls[..] {
        let _ = answers.remove(0).send(alone(shared, call, deadline).await);
        return;
    }
    let batch = batch(&calls, BATCH_MICROS);
    let Answer { outcome, sent, received, epoch } = call::call(shared, &batch, deadline, Resend::Never).await;
    let (outcomes, has_failed) = match outcome {
        Ok(reply) => outcomes(reply, calls.len()),
        Err(Failure::Server(_) | Failure::Deferred) => outcomes(Value::Nil, calls.len()),
        Err(failure) => (vec![Err(failure); calls.len()], false),
    };
    if has_failed {
        lock(&shared.gather.state).apart_until = Some(shared.clock.now().plus(APART));
    }
    for (answer, outcome) in answers.into_iter().zip(outcomes) {
        let _ = answer.send(Answer { outcome, sent, received, epoch });
    }
    // Behind those: what was deferred with them comes behind them.
    under_way.end();
}
