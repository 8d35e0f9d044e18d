//! Calls that are ready together: which of them go out together, in which order, and what becomes of them.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockwright::Client as Locks;
use lockwright::LockError;
use lockwright::internals::backend::{Answer, Failure, Pending};
use lockwright::internals::name::{LockKeys, Namespace};
use lockwright::internals::scripts::*;
use lockwright::internals::ticket::{Ticket, Tickets};

use super::*;
use crate::protocol::rig::set_arg;
use crate::support::backend::{Client, LONG, setup};

/// Calls of one client on locks of a kind.
struct Caller {
    client: Client,
    tickets: Tickets,
    kind: Kind,
    now: u64,
}

impl Caller {
    async fn new(server: &Server, kind: Kind) -> Self {
        let setup = setup(server.socket_url());
        let tickets = Tickets::new(setup.client);
        let every: Vec<_> = every().collect();
        let client = Client::connect_with(setup, &every).await.expect("the server takes us");
        let now = client.up.server_millis;
        Self { client, tickets, kind, now }
    }

    fn terms() -> Terms {
        Terms { claim_millis: 3_000, deadline_millis: 10_000, sharded: false, counted: true }
    }

    fn acquire(&self, name: &str) -> (Ticket, Call) {
        let keys = LockKeys::new(&Namespace::default(), name).unwrap();
        let (ticket, mode) = (self.tickets.next(), Mode::Exclusive);
        let attempt = Attempt { ticket, mode, owner: None, lease_millis: 30_000, block: 1, label: None };
        let (kind, wait, not_after_millis) = (self.kind, Wait::Join, self.now + 60_000);
        let terms = Self::terms();
        let call =
            Acquire { keys: &keys, kind, attempt: &attempt, wait, not_after_millis, deaf: false, terms }
                .call();
        (ticket, call)
    }

    fn leave(&self, name: &str, ticket: Ticket) -> Call {
        let keys = LockKeys::new(&Namespace::default(), name).unwrap();
        Leave { keys: &keys, kind: self.kind, ticket, next: None, deaf: false, terms: Self::terms() }.call()
    }

    fn send(&self, call: Call) -> Pending<Answer> {
        self.client.backend.call(call, LONG)
    }
}

fn granted(answer: &Answer) -> bool {
    let reply = AcquireReply::decode(answer.outcome.as_ref().expect("it was carried out"));
    matches!(reply.expect("it is a reply").reply, AcquireReply::Granted(_))
}

/// Makes the first step of these calls, in their order.
fn begin(caller: &Caller, calls: impl IntoIterator<Item = Call>) -> Vec<Pending<Answer>> {
    let first_step = |call| {
        let mut call = caller.send(call);
        assert!((&mut call).now_or_never().is_none());
        call
    };
    calls.into_iter().map(first_step).collect()
}

/// Has the task that sends, and all that follow from it, run.
async fn breathe() {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn calls_that_are_ready_together_are_one_script_call() {
    let server = Server::start();
    for kind in [Kind::Reentrant, Kind::Fair] {
        let caller = Caller::new(&server, kind).await;
        let before = server.script_calls();
        let calls =
            (0..1 + 4 * BATCH_MOST).map(|number| caller.send(caller.acquire(&format!("{kind} {number}")).1));
        let answers = join_all(calls).await;
        assert!(answers.iter().all(granted));
        // The first finds none under way. A batch that has taken long leaves calls undone.
        let calls = server.script_calls() - before;
        assert!((5..answers.len() as u64 / 2).contains(&calls), "{calls} for {} locks", answers.len());
        for answer in answers {
            assert!(answer.sent <= answer.received && answer.epoch == caller.client.up.epoch);
        }
    }
}

#[tokio::test]
async fn one_call_after_another_goes_out_alone_and_at_once() {
    let server = Server::start();
    let caller = Caller::new(&server, Kind::Reentrant).await;
    let before = server.script_calls();
    for number in 0..20 {
        assert!(granted(&caller.send(caller.acquire(&number.to_string()).1).await));
    }
    assert_eq!(server.script_calls() - before, 20);
}

/// Fails where calls of one lock go together, or where what a batch leaves undone is sent again behind the next ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_for_one_lock_queue_as_they_came() {
    let server = Server::start();
    let caller = Caller::new(&server, Kind::Fair).await;
    let mut sequences: Vec<Vec<u64>> = vec![Vec::new(); 3];
    let calls = (0..600).map(|number| {
        let lock = number % 3;
        let call = caller.send(caller.acquire(&format!("hot {lock}")).1);
        let other = caller.send(caller.acquire(&format!("cold {number}")).1);
        async move {
            let (answer, other) = futures_util::join!(call, other);
            assert!(granted(&other));
            (lock, answer)
        }
    });
    for (lock, answer) in join_all(calls).await {
        let reply = AcquireReply::decode(&answer.outcome.expect("it is answered")).unwrap().reply;
        match reply {
            AcquireReply::Queued(queued) => sequences[lock].push(queued.sequence),
            AcquireReply::Granted(_) => assert!(sequences[lock].is_empty(), "a later one has it"),
            other => panic!("{other:?}"),
        }
    }
    for of_lock in sequences {
        assert_eq!(of_lock.len(), 199);
        assert!(of_lock.is_sorted(), "{of_lock:?}");
    }
}

/// Fails where a leaving goes past the asking that its batch has left undone: that brings a hold that nobody knows of.
#[tokio::test]
async fn a_leaving_comes_behind_the_asking_that_a_batch_left_undone() {
    let server = Server::start();
    let caller = Caller::new(&server, Kind::Reentrant).await;
    let [(_, first), (ticket, one), (_, two)] = ["first", "one", "two"].map(|name| caller.acquire(name));
    let leave = caller.leave("one", ticket);
    // The server knows how to leave. It is told how to acquire by the first call, and then of the batch, whose calls are
    // sent again.
    server.connection().ok(&["SCRIPT", "FLUSH"]);
    server.connection().ok(&["SCRIPT", "LOAD", leave.script.text]);
    server.signal("STOP");
    let mut waiting = begin(&caller, [first, one, two]);
    breathe().await;
    waiting.extend(begin(&caller, [leave]));
    server.signal("CONT");
    let answers = join_all(waiting).await;
    assert_eq!(answers[0].outcome, Err(Failure::NotSent));
    assert!(granted(&answers[1]) && granted(&answers[2]), "{answers:?}");
    let left = LeaveReply::decode(answers[3].outcome.as_ref().unwrap()).unwrap().reply;
    assert_eq!(left, LeaveReply::Freed { more: false, next: Next::None });
    assert_eq!(server.connection().ok(&["EXISTS", "lw:{one}"]).int(), 0);
}

/// Fails where a call that never goes with others, as one that inspects, goes past those of its lock that wait.
#[tokio::test]
async fn a_call_on_a_lock_of_a_batch_under_way_comes_behind_it() {
    let server = Server::start();
    let caller = Caller::new(&server, Kind::Reentrant).await;
    let (broken_ticket, mut broken) = caller.acquire("broken");
    set_arg(&mut broken, 2, "long");
    let inspect = |name: &str| Inspect { keys: &LockKeys::new(&Namespace::default(), name).unwrap() }.call();
    server.signal("STOP");
    let [(_, first), (ticket, one), (_, two)] = ["first", "one", "two"].map(|name| caller.acquire(name));
    let mut waiting = begin(&caller, [first, one, broken, two]);
    // The batch of the three is under way.
    breathe().await;
    let later = [caller.leave("one", ticket), inspect("one"), caller.leave("broken", broken_ticket)];
    waiting.extend(begin(&caller, later));
    breathe().await;
    server.signal("CONT");
    let answers = join_all(waiting).await;
    assert!([0, 1, 3].into_iter().all(|at| granted(&answers[at])), "{answers:?}");
    assert!(matches!(&answers[2].outcome, Err(Failure::Server(error)) if error.text.contains("user_script")));
    let left = |at: usize| LeaveReply::decode(answers[at].outcome.as_ref().unwrap()).unwrap().reply;
    assert_eq!(left(4), LeaveReply::Freed { more: false, next: Next::None });
    assert_eq!(left(6), LeaveReply::Gone { more: false });
    // What goes alone does not go past the others of its lock.
    let seen = InspectReply::decode(answers[5].outcome.as_ref().unwrap()).unwrap().reply;
    assert!(matches!(seen, InspectReply::Info(info) if info.kind.is_none()), "it was left before");
}

/// Fails where a call that waits for the batch of another's lock waits for longer than it has.
#[tokio::test]
async fn a_call_that_waits_for_a_batch_ends_in_time() {
    let server = Server::start();
    let caller = Caller::new(&server, Kind::Reentrant).await;
    server.signal("STOP");
    let waiting = begin(&caller, ["first", "one", "two"].map(|name| caller.acquire(name).1));
    breathe().await;
    let short = Duration::from_millis(50);
    let held = caller.client.backend.call(caller.acquire("one").1, short).await;
    assert!(matches!(held.outcome, Err(Failure::Unknown(_))), "{held:?}");
    server.signal("CONT");
    assert!(join_all(waiting).await.iter().all(granted));
    // And it is not sent any more.
    let seen = caller.send(caller.acquire("one").1).await.outcome.unwrap();
    let AcquireReply::Queued(queued) = AcquireReply::decode(&seen).unwrap().reply else { panic!("{seen:?}") };
    assert_eq!(queued.living, 1);
}

/// Fails where a call that fails is sent with others again and again: nobody would ever hear what is wrong.
#[tokio::test]
async fn a_call_that_fails_is_told_why() {
    let server = Server::start();
    let caller = Caller::new(&server, Kind::Reentrant).await;
    let broken = || {
        let (_, mut call) = caller.acquire("broken");
        set_arg(&mut call, 2, "long");
        caller.send(call)
    };
    let sound = |name: &str| caller.send(caller.acquire(name).1);
    for names in [["a", "b", "c"], ["d", "e", "f"]] {
        let answers = join_all([sound(names[0]), sound(names[1]), broken(), sound(names[2])]).await;
        assert!(
            matches!(&answers[2].outcome, Err(Failure::Server(error)) if error.text.contains("user_script"))
        );
        for at in [0, 1, 3] {
            assert!(granted(&answers[at]));
        }
    }
}

/// Fails where the connection sends an asking again: the leaving of its ticket may have overtaken it by then, and it would
/// bring a hold that nobody knows of.
#[tokio::test]
async fn an_asking_that_the_server_does_not_know_is_not_sent_again() {
    let server = Server::start();
    let caller = Caller::new(&server, Kind::Reentrant).await;
    let (ticket, call) = caller.acquire("a");
    server.connection().ok(&["SCRIPT", "FLUSH"]);
    assert_eq!(caller.send(call.clone()).await.outcome, Err(Failure::NotSent));
    assert_eq!(server.connection().ok(&["EXISTS", "lw:{a}"]).int(), 0);
    assert!(granted(&caller.send(call).await), "it was told the script");
    // A leaving may come as late as it likes.
    server.connection().ok(&["SCRIPT", "FLUSH"]);
    let left = caller.send(caller.leave("a", ticket)).await.outcome.expect("it is sent again");
    assert!(matches!(LeaveReply::decode(&left).unwrap().reply, LeaveReply::Freed { .. }));
}

#[tokio::test]
async fn a_server_that_forgot_the_batch_is_told_it() {
    let server = Server::start();
    let caller = Caller::new(&server, Kind::Reentrant).await;
    server.connection().ok(&["SCRIPT", "FLUSH"]);
    let mut calls: Vec<Call> = (0..20).map(|number| caller.acquire(&number.to_string()).1).collect();
    // Once for the batch, and once for each script that is sent then.
    for _ in 0..3 {
        let answers = join_all(calls.iter().map(|call| caller.send(call.clone()))).await;
        let mut answers = answers.iter();
        calls.retain(|_| match answers.next().expect("each has one") {
            Answer { outcome: Err(Failure::NotSent), .. } => true,
            answer => !granted(answer),
        });
    }
    assert!(calls.is_empty(), "{} are left", calls.len());
}

#[tokio::test]
async fn what_is_under_way_when_the_connection_is_lost_is_unknown() {
    let mut server = Server::start();
    let mut caller = Caller::new(&server, Kind::Reentrant).await;
    server.signal("STOP");
    let names = ["first", "one", "two", "one"];
    let mut waiting = begin(&caller, names[..3].iter().map(|name| caller.acquire(name).1));
    breathe().await;
    waiting.extend(begin(&caller, [caller.acquire(names[3]).1]));
    server.kill();
    for (name, answer) in names.into_iter().zip(join_all(waiting).await) {
        assert!(matches!(answer.outcome, Err(Failure::Unknown(_) | Failure::NotSent)), "{name}: {answer:?}");
    }
    server.restart();
    caller.client.next_up().await;
    assert!(
        join_all(["a", "b", "c"].map(|name| caller.send(caller.acquire(name).1))).await.iter().all(granted)
    );
}

#[tokio::test]
async fn what_is_not_answered_in_time_is_unknown() {
    let server = Server::start();
    let caller = Caller::new(&server, Kind::Reentrant).await;
    server.signal("STOP");
    let short = Duration::from_millis(200);
    let calls: Vec<_> =
        ["a", "b", "c", "d"].map(|name| caller.client.backend.call(caller.acquire(name).1, short)).into();
    for answer in join_all(calls).await {
        assert!(matches!(answer.outcome, Err(Failure::Unknown(_))), "{answer:?}");
    }
    server.signal("CONT");
}

#[tokio::test]
async fn what_waits_when_the_connection_is_closed_ends() {
    let server = Server::start();
    let caller = Caller::new(&server, Kind::Reentrant).await;
    server.signal("STOP");
    let calls = begin(&caller, ["a", "b", "c"].map(|name| caller.acquire(name).1));
    caller.client.backend.close().await;
    for answer in join_all(calls).await {
        assert!(matches!(answer.outcome, Err(Failure::Unknown(_) | Failure::NotSent)), "{answer:?}");
    }
    let late = join_all(["d", "e"].map(|name| caller.send(caller.acquire(name).1))).await;
    assert!(late.iter().all(|answer| answer.outcome == Err(Failure::NotSent)), "{late:?}");
    server.signal("CONT");
}

#[tokio::test]
async fn where_scripts_are_sent_as_texts_calls_go_alone() {
    let server = Server::start();
    server.connection().ok(&["ACL", "SETUSER", "ann", "on", ">p", "~*", "&*", "+@all", "-evalsha"]);
    let client = Locks::connect(&url("ann:p", &server)).await.expect("the server takes us");
    let before = server.script_calls();
    let locks = (0..40).map(|number| client.lock(&number.to_string()).lock());
    let guards = futures_util::future::try_join_all(locks).await.expect("they are free");
    for ended in join_all(guards.into_iter().map(|guard| guard.unlock())).await {
        ended.expect("it was held");
    }
    assert!(server.script_calls() - before >= 80, "some went together");
    client.close().await;
}

/// Fails where a right that is missing for one of the locks is missing for all of them.
#[tokio::test]
async fn a_lock_that_is_denied_is_denied_alone() {
    let server = Server::start();
    let rule = [
        "ACL",
        "SETUSER",
        "ann",
        "on",
        ">p",
        "resetchannels",
        "&*",
        "+@all",
        "-acl",
        "~lw:layout",
        "~lw:{mine*",
    ];
    server.connection().ok(&rule);
    // What the refused ticket may have left is given back for so long.
    let client = Locks::builder().url(url("ann:p", &server)).unavailable_after(Duration::from_secs(1));
    let client = client.connect().await.expect("the server takes us");
    let names = ["mine 1", "mine 2", "theirs", "mine 3"];
    let outcomes = join_all(names.map(|name| client.lock(name).lock())).await;
    for (name, outcome) in names.into_iter().zip(&outcomes) {
        match outcome {
            Ok(guard) => assert!(name.starts_with("mine") && guard.is_held()),
            Err(LockError::Unauthorized { .. }) => assert_eq!(name, "theirs"),
            Err(other) => panic!("{name}: {other}"),
        }
    }
    client.close().await;
}
