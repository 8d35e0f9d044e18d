//! The read/write lock: who is inside with whom, in which order, and who may enter again.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;
use lockwright::internals::entries;
use lockwright::{
    InvalidName, Kind, Lease, LockError, LossReason, Mode, NotObtained, Owner, ReadGuard, RunError, RwLock,
    UnlockError, WriteGuard,
};
use tokio::sync::mpsc;

use super::*;

/// Begins to read what nobody writes now.
pub async fn read(lock: &RwLock) -> ReadGuard {
    lock.try_read().await.expect("the server answers").expect("nobody writes")
}

/// Begins to write what nobody reads or writes now.
pub async fn write(lock: &RwLock) -> WriteGuard {
    lock.try_write().await.expect("the server answers").expect("nobody reads or writes")
}

pub async fn wait_to_read(lock: &RwLock) -> ReadGuard {
    soon("the read", lock.read()).await.expect("it is granted")
}

pub async fn wait_to_write(lock: &RwLock) -> WriteGuard {
    soon("the write", lock.write()).await.expect("it is granted")
}

/// Whether a write would wait now. It leaves nothing behind.
pub async fn keeps_writers_out(lock: &RwLock) -> bool {
    lock.try_write().await.expect("the server answers").is_none()
}

pub async fn keeps_readers_out(lock: &RwLock) -> bool {
    lock.try_read().await.expect("the server answers").is_none()
}

pub async fn many_read_or_one_writes<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await.rw_lock("a"), on.client().await.rw_lock("a"));
    let (here, also_here, there) = (read(&one).await, read(&one).await, read(&other).await);
    assert!(here.is_held() && also_here.is_held() && there.is_held());
    for guard in [here, there, also_here] {
        assert!(keeps_writers_out(&one).await && keeps_writers_out(&other).await);
        guard.unlock().await.expect("it is held");
    }
    let writer = write(&one).await;
    for lock in [&one, &other] {
        assert!(keeps_readers_out(lock).await && keeps_writers_out(lock).await);
    }
    writer.unlock().await.expect("it is held");
    drop(write(&other).await);
    wait_to_read(&one).await.unlock().await.expect("it is held");
}

pub async fn reads_and_writes_dropped_outside_a_runtime_free<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await.rw_lock("a"), on.client().await.rw_lock("a"));
    let readers = [read(&one).await, read(&one).await, read(&other).await];
    std::thread::spawn(move || drop(readers)).join().expect("no panic outside a runtime");
    let writer = wait_to_write(&one).await;
    std::thread::spawn(move || drop(writer)).join().expect("no panic outside a runtime");
    wait_to_write(&other).await.unlock().await.expect("it is held");
}

/// Nobody overtakes: a reader that comes behind a writer waits for it, in every client.
pub async fn readers_and_writers_take_turns_in_order<D: Deployment>(on: &D) {
    let clients = [on.client().await, on.client().await, on.client().await];
    let first = read(&clients[0].rw_lock("a")).await;
    let (entered, mut order) = mpsc::unbounded_channel();
    for (number, writes) in [true, false, false, true, false, true, true, false].into_iter().enumerate() {
        // Each reader has an owner, and so a place of its own.
        let lock = clients[number % 3].rw_lock("a").with_owner(&Owner::new());
        let entered = entered.clone();
        tokio::spawn(async move {
            if writes {
                let guard = lock.write().await.expect("it is granted");
                entered.send((number, guard.token())).expect("the case listens");
                guard.unlock().await.expect("it is held");
            } else {
                let guard = lock.read().await.expect("it is granted");
                entered.send((number, guard.version())).expect("the case listens");
                guard.unlock().await.expect("it is held");
            }
        });
        until_waiting(&clients[0], "a", number as u64 + 1).await;
    }
    assert!(keeps_readers_out(&clients[1].rw_lock("a")).await);
    let before = first.version();
    first.unlock().await.expect("it is held");
    drop(entered);
    let mut served = Vec::new();
    while let Some(turn) = soon("all of them", order.recv()).await {
        served.push(turn);
    }
    let numbers: Vec<usize> = served.iter().map(|&(number, _)| number).collect();
    // The two readers enter together.
    assert!([[0, 1, 2, 3, 4, 5, 6, 7], [0, 2, 1, 3, 4, 5, 6, 7]].contains(&numbers[..].try_into().unwrap()));
    let versions: Vec<u64> = served.iter().map(|&(_, version)| version).collect();
    assert!(before < versions[0] && versions.is_sorted(), "{before}, {versions:?}");
    assert_eq!(versions[1], versions[2]);
}

pub async fn readers_at_the_head_enter_together<D: Deployment>(on: &D) {
    let clients = join_all((0..5).map(|_| on.client_with(slow_to_poll))).await;
    let writer = write(&clients[0].rw_lock("a")).await;
    let waiting: Vec<_> = clients.iter().map(|client| tokio::spawn(client.rw_lock("a").read())).collect();
    until_waiting(&clients[0], "a", 5).await;
    let (took, readers) = timed("the readers", async {
        writer.unlock().await.expect("it is held");
        join_all(waiting).await
    })
    .await;
    assert!(took < BY_MESSAGE, "{took:?}");
    let readers: Vec<ReadGuard> =
        readers.into_iter().map(|task| task.expect("no panic").expect("it is granted")).collect();
    assert!(readers.iter().all(|reader| reader.is_held() && reader.version() == readers[0].version()));
}

pub async fn waits_of_readers_and_writers_end_in_time<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await.rw_lock("a"), on.client().await.rw_lock("a"));
    let limit = Duration::from_secs(1);
    let reader = read(&one).await;
    let (took, outcome) = timed("the end of the wait", other.try_write_for(limit)).await;
    assert!(matches!(outcome, Ok(None)) && took >= limit, "{outcome:?} after {took:?}");
    let outcome = soon("the end of the wait", one.try_write_until(in_time(limit))).await;
    assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    assert!(other.try_read_for(limit).await.expect("the server answers").is_some());
    reader.unlock().await.expect("it is held");
    let writer = wait_to_write(&one).await;
    let (took, outcome) = timed("the end of the wait", other.try_read_for(limit)).await;
    assert!(matches!(outcome, Ok(None)) && took >= limit, "{outcome:?} after {took:?}");
    let outcome = soon("the end of the wait", other.try_read_until(in_time(limit))).await;
    assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    writer.unlock().await.expect("it is held");
}

pub async fn sections_are_run_while_reading_and_writing<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await.rw_lock("a"), on.client().await.rw_lock("a"));
    // Within it an answer must come, on a busy machine too; that it is kept is another case's subject.
    let limit = Duration::from_millis(300);
    let version = one
        .run_read(async |reader: &ReadGuard| {
            assert!(keeps_writers_out(&other).await);
            assert_eq!(other.run_write_for(limit, async |_: &WriteGuard| ()).await, Ok(None));
            let why = other.run_write_or_else(async |_: &WriteGuard| None, async |why| Some(why)).await;
            assert_eq!(why, Ok(Some(NotObtained::Held)));
            reader.version()
        })
        .await
        .expect("it is granted");
    let token = one
        .run_write(async |writer: &WriteGuard| {
            assert!(keeps_readers_out(&other).await);
            assert_eq!(other.run_read_for(limit, async |_: &ReadGuard| ()).await, Ok(None));
            let why = other.run_read_or_else(async |_: &ReadGuard| None, async |why| Some(why)).await;
            assert_eq!(why, Ok(Some(NotObtained::Held)));
            writer.token()
        })
        .await
        .expect("it is granted");
    assert!(version < token);
    let name = on.client().await.rw_lock("").run_read(async |_: &ReadGuard| ()).await;
    assert_eq!(name, Err(RunError::Lock(LockError::InvalidName(InvalidName::Empty))));
    assert_eq!(one.run_read_or_else(async |_: &ReadGuard| true, async |_| false).await, Ok(true));
    wait_to_write(&other).await.unlock().await.expect("it is held");
}

/// The kinds do not mix: neither touches what the other one has.
pub async fn a_read_write_lock_is_a_kind_of_its_own<D: Deployment>(on: &D) {
    let client = on.client().await;
    let lock = client.rw_lock("a");
    let mismatch = |found: &str| Some(LockError::KindMismatch { found: found.to_owned() });
    for writes in [false, true] {
        let guards = match writes {
            false => (Some(read(&lock).await), None),
            true => (None, Some(write(&lock).await)),
        };
        assert_eq!(client.lock("a").try_lock().await.err(), mismatch("read_write"));
        assert_eq!(soon("an answer", client.fair_lock("a").lock()).await.err(), mismatch("read_write"));
        assert_eq!(info(&client, "a").await.holds.len(), 1);
        drop(guards);
        until_free(&client, "a").await;
    }
    let reentrant = take(&client, "a").await;
    assert_eq!(lock.try_read().await.err(), mismatch("reentrant"));
    assert_eq!(soon("an answer", lock.write()).await.err(), mismatch("reentrant"));
    reentrant.unlock().await.expect("it is held");
    let fair = client.fair_lock("a").lock().await.expect("it is free");
    assert_eq!(soon("an answer", lock.read()).await.err(), mismatch("fair"));
    fair.unlock().await.expect("it is held");
}

pub async fn inspection_shows_readers_and_who_waits<D: Deployment>(on: &D) {
    let one = on.client_with(|builder| builder.label("the first")).await;
    let other = on.client().await;
    let (here, there) = (read(&one.rw_lock("a")).await, read(&other.rw_lock("a")).await);
    let waiting = tokio::spawn(other.rw_lock("a").with_label("the writer").write());
    until_waiting(&one, "a", 1).await;
    let shown = info(&one, "a").await;
    assert_eq!((shown.kind, shown.mode, &shown.owner), (Some(Kind::ReadWrite), Some(Mode::Read), &None));
    let mut labels: Vec<_> = shown.holds.iter().map(|hold| hold.label.as_deref()).collect();
    labels.sort_unstable();
    assert_eq!(labels, [None, Some("the first")]);
    assert!(shown.holds.iter().all(|hold| (10_000..=30_000).contains(&hold.left_millis)), "{shown:?}");
    assert_eq!((shown.waiting[0].mode, shown.waiting[0].label.as_deref()), (Mode::Write, Some("the writer")));
    drop((here, there));
    let writer = soon_granted("the write", waiting).await;
    let shown = info(&one, "a").await;
    assert_eq!((shown.mode, shown.token), (Some(Mode::Write), Some(writer.token())));
    assert_eq!((shown.holds.len(), shown.waiting_count), (1, 0));
}

pub async fn force_takes_a_lock_from_all_readers<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let readers =
        [read(&one.rw_lock("a")).await, read(&one.rw_lock("a")).await, read(&other.rw_lock("a")).await];
    let lost: Vec<_> = readers.iter().map(|reader| tokio::spawn(reader.lost())).collect();
    let waiting = tokio::spawn(other.rw_lock("a").write());
    until_waiting(&one, "a", 1).await;
    let token = info(&one, "a").await.token.expect("it is held");
    assert_eq!(one.force_release("a", token).await, Ok(true));
    let (took, reasons) = timed("the news", join_all(lost)).await;
    assert!(took < BY_MESSAGE, "{took:?}");
    for reason in reasons {
        assert_eq!(reason.expect("no panic"), LossReason::TakenByForce);
    }
    let writer = soon_granted("the write", waiting).await;
    for reader in readers {
        assert!(!reader.is_held());
        assert_eq!(reader.unlock().await, Err(UnlockError::Lost(LossReason::TakenByForce)));
    }
    // What was lost frees nothing.
    assert!(writer.is_held() && keeps_readers_out(&one.rw_lock("a")).await);
    let token = writer.token();
    assert_eq!(one.force_release("a", token).await, Ok(true));
    assert_eq!(soon("the news", writer.lost()).await, LossReason::TakenByForce);
}

/// More than one call tells, each with a hold of its own.
pub async fn force_tells_hundreds_of_readers<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let owners: Vec<RwLock> = (0..600).map(|_| one.rw_lock("a").with_owner(&Owner::new())).collect();
    let readers = join_all(owners.iter().map(read)).await;
    let info = info(&other, "a").await;
    assert_eq!(info.hold_count, 600);
    let lost: Vec<_> = readers.iter().map(|reader| tokio::spawn(reader.lost())).collect();
    assert_eq!(other.force_release("a", info.token.expect("it is held")).await, Ok(true));
    let (took, reasons) = timed("the news", join_all(lost)).await;
    assert!(took < BY_MESSAGE, "{took:?}");
    for reason in reasons {
        assert_eq!(reason.expect("no panic"), LossReason::TakenByForce);
    }
    until_free(&other, "a").await;
}

/// Fails where the read waits for its own poll, half a claim later.
pub async fn an_owner_that_waits_to_read_and_to_write_enters_at_once<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let lock = one.rw_lock("a").with_owner(&Owner::new());
    let holder = write(&other.rw_lock("a")).await;
    let writer = tokio::spawn(lock.write());
    until_waiting(&other, "a", 1).await;
    let reader = tokio::spawn(lock.read());
    until_waiting(&other, "a", 2).await;
    holder.unlock().await.expect("it is held");
    let writer = soon_granted("the write", writer).await;
    let (took, reader) = timed("the read", reader).await;
    let reader = reader.expect("no panic").expect("it is granted");
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert_eq!(reader.version(), writer.token());
}

pub async fn a_writer_reads_and_writes_again<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let owner = Owner::new();
    let lock = one.rw_lock("a").with_owner(&owner);
    let outer = write(&lock).await;
    let reader = read(&lock).await;
    let inner = write(&lock).await;
    // From another process, which was given the owner.
    let remote = read(&other.rw_lock("a").with_owner(&owner)).await;
    assert_eq!([reader.version(), inner.token(), remote.version()], [outer.token(); 3]);
    assert_eq!((reader.stamp(), remote.stamp()), (None, None), "what is not finished is not cached");
    assert!(keeps_readers_out(&other.rw_lock("a")).await);
    // In any order: while a write is left nobody else reads, then others do.
    let token = outer.token();
    outer.unlock().await.expect("it is held");
    assert!(inner.is_held() && keeps_readers_out(&other.rw_lock("a")).await);
    inner.unlock().await.expect("it is held");
    assert!(reader.is_held() && remote.is_held() && keeps_writers_out(&other.rw_lock("a")).await);
    let beside = read(&other.rw_lock("a")).await;
    assert!(beside.version() > token, "{} after {token}", beside.version());
    drop((beside, reader, remote));
    wait_to_write(&other.rw_lock("a")).await.unlock().await.expect("it is held");
}

pub async fn a_reader_that_asks_to_write_would_wait_for_itself<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let owner = Owner::new();
    let (lock, remote) = (one.rw_lock("a").with_owner(&owner), other.rw_lock("a").with_owner(&owner));
    let reader = read(&lock).await;
    for lock in [&lock, &remote] {
        assert_eq!(soon("an answer", lock.write()).await.err(), Some(LockError::WouldDeadlock));
        assert_eq!(lock.try_write().await.err(), Some(LockError::WouldDeadlock));
    }
    assert!(reader.is_held());
    reader.unlock().await.expect("it is held");
    write(&lock).await.unlock().await.expect("it is held");
    // One that waits already is told at its next poll.
    let stranger = write(&one.rw_lock("a")).await;
    let reading = tokio::spawn(lock.read());
    until_waiting(&one, "a", 1).await;
    let writing = tokio::spawn(remote.write());
    until_waiting(&one, "a", 2).await;
    stranger.unlock().await.expect("it is held");
    let reader = soon_granted("the read", reading).await;
    assert_eq!(soon("an answer", writing).await.expect("no panic").err(), Some(LockError::WouldDeadlock));
    assert!(reader.is_held());
}

pub async fn an_owner_reads_again_past_waiting_writers<D: Deployment>(on: &D) {
    let (one, other, third) = (on.client().await, on.client().await, on.client().await);
    let owner = Owner::new();
    let outer = read(&one.rw_lock("a").with_owner(&owner)).await;
    let waiting = tokio::spawn(third.rw_lock("a").write());
    until_waiting(&one, "a", 1).await;
    // Behind the writer it would wait for itself, here and in another process.
    let here = wait_to_read(&one.rw_lock("a").with_owner(&owner)).await;
    let there = wait_to_read(&other.rw_lock("a").with_owner(&owner)).await;
    assert!(one.rw_lock("a").with_owner(&owner).try_read_cached().is_some());
    assert!(keeps_readers_out(&other.rw_lock("a")).await && !waiting.is_finished());
    assert_eq!([here.version(), there.version()], [outer.version(); 2]);
    drop((outer, here, there));
    soon_granted("the write", waiting).await.unlock().await.expect("it is held");
}

/// Each hold ends with its own lease: neither a shorter one's renewal nor a second entry changes another's.
pub async fn each_hold_has_its_own_lease<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let (long, short) = (Duration::from_secs(60), Duration::from_millis(300));
    let stays = read(&one.rw_lock("a").with_lease(Lease::renewed(long))).await;
    let renewed = read(&other.rw_lock("a").with_lease(Lease::renewed(short))).await;
    // A reader that dies: nobody renews it.
    let dead = read(&other.rw_lock("a").with_lease(Lease::fixed(short * 2))).await;
    let ended = dead.lost();
    std::mem::forget(dead);
    // The passing of time is the subject: several renewals of the short one.
    pass(short * 4).await;
    assert!(renewed.is_held() && stays.is_held());
    assert_eq!(soon("the end", ended).await, LossReason::Expired);
    let mut left: Vec<u64> = info(&one, "a").await.holds.iter().map(|hold| hold.left_millis).collect();
    left.retain(|&left| left > 0);
    left.sort_unstable();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left[0] <= 300 && left[1] > 40_000, "{left:?}");
    // The dead one is nobody's obstacle.
    drop((stays, renewed));
    let writer = wait_to_write(&one.rw_lock("a")).await;
    drop(writer);
    until_free(&one, "a").await;

    let lock = one.rw_lock("b").with_owner(&Owner::new()).with_lease(Lease::renewed(Duration::from_secs(2)));
    let writes = [write(&lock).await, write(&lock).await, write(&lock).await];
    let holds = info(&one, "b").await.holds;
    assert!(holds.iter().all(|hold| hold.left_millis <= 2_000), "{holds:?}");
    drop(writes);
}

pub async fn limits_of_reads_and_writes_end_them<D: Deployment>(on: &D) {
    let lock = on.client().await.rw_lock("a");
    let short = Duration::from_millis(200);
    let shared = read(&lock).await;
    for limited in [lock.clone().with_max_hold(short), lock.clone().with_lease(Lease::fixed(short))] {
        let reader = read(&limited).await;
        assert!(reader.remaining() <= short);
        assert_eq!(soon("the end", reader.lost()).await, LossReason::Expired);
        assert!(!reader.is_held() && shared.is_held());
    }
    shared.extend(Duration::from_secs(60)).await.expect("it is held");
    assert!(shared.remaining() > Duration::from_secs(40));
    shared.unlock().await.expect("it is held");
    let writer = wait_to_write(&lock.clone().with_max_hold(short)).await;
    assert_eq!(soon("the end", writer.lost()).await, LossReason::Expired);
    assert_eq!(writer.unlock().await, Err(UnlockError::Lost(LossReason::Expired)));
}

pub async fn a_read_or_write_that_is_dropped_while_it_waits_leaves_nothing<D: Deployment>(on: &D) {
    let (one, other) = (on.client_with(slow_to_poll).await, on.client_with(slow_to_poll).await);
    let here = one.rw_lock("a");
    for lock in
        [other.rw_lock("a"), other.rw_lock("a").cached(), other.rw_lock("a").with_owner(&Owner::new())]
    {
        for round in 0..15 {
            let writer = wait_to_write(&here).await;
            drop((lock.read(), lock.write()));
            assert!(lock.read().now_or_never().is_none() && lock.write().now_or_never().is_none());
            {
                let mut reading = pin!(lock.read());
                assert!(futures_util::poll!(reading.as_mut()).is_pending());
                let mut writing = pin!(lock.write());
                assert!(futures_util::poll!(writing.as_mut()).is_pending());
                if round % 3 > 0 {
                    until_waiting(&one, "a", 2).await;
                }
                drop(writer);
                if round % 3 == 2 {
                    // Granted, and never seen. (An owner's write may have been refused by then, beside its read.)
                    until("the grant", async || info(&one, "a").await.waiting_count < 2).await;
                }
                for _ in 0..round {
                    tokio::task::yield_now().await;
                }
            }
            let (took, writer) = timed("the write", wait_to_write(&here)).await;
            assert!(took < BY_MESSAGE, "{took:?} in round {round}");
            drop(writer);
        }
    }
    until_free(&one, "a").await;
}

pub async fn closing_ends_reads_and_writes<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let (reader, writer) = (read(&one.rw_lock("a")).await, write(&one.rw_lock("b")).await);
    drop(read(&one.rw_lock("c").cached()).await);
    let strangers = write(&other.rw_lock("d")).await;
    let waiting = [tokio::spawn(one.rw_lock("d").read()), tokio::spawn(one.rw_lock("d").cached().read())];
    until_waiting(&other, "d", 1).await;
    let write_waits = tokio::spawn(one.rw_lock("d").write());
    until_waiting(&other, "d", 2).await;
    soon("the close", one.close()).await;
    for waiting in waiting {
        assert_eq!(soon("the end", waiting).await.expect("no panic").err(), Some(LockError::Closed));
    }
    assert_eq!(soon("the end", write_waits).await.expect("no panic").err(), Some(LockError::Closed));
    assert_eq!(soon("the news", reader.lost()).await, LossReason::Closed);
    assert_eq!(reader.unlock().await, Err(UnlockError::Lost(LossReason::Closed)));
    assert_eq!(writer.unlock().await, Err(UnlockError::Lost(LossReason::Closed)));
    // All that was to be sent was sent before the close returned.
    for name in ["a", "b", "c"] {
        assert!(is_free(&info(&other, name).await), "{name}");
    }
    assert_eq!(info(&other, "d").await.waiting_count, 0);
    assert_eq!(one.rw_lock("a").read().await.err(), Some(LockError::Closed));
    assert!(one.rw_lock("c").cached().try_read_cached().is_none());
    drop(strangers);
}

/// What a lock guards: it sees by itself when a writer is not alone, and when versions do not rise.
#[derive(Default)]
struct Cell {
    /// How many read; negative while somebody writes.
    inside: AtomicI64,
    version: AtomicU64,
}

impl Cell {
    async fn read(&self, reader: &ReadGuard) {
        assert!(self.inside.fetch_add(1, Ordering::SeqCst) >= 0, "beside a writer");
        let written = self.version.load(Ordering::SeqCst);
        assert!(reader.version() > written, "{} after {written}", reader.version());
        tokio::task::yield_now().await;
        assert_eq!(self.version.load(Ordering::SeqCst), written, "written under a reader");
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    async fn write(&self, writer: &WriteGuard) {
        assert_eq!(self.inside.fetch_sub(1, Ordering::SeqCst), 0, "not alone");
        let last = self.version.swap(writer.token(), Ordering::SeqCst);
        assert!(writer.token() > last, "{} after {last}", writer.token());
        tokio::task::yield_now().await;
        self.inside.fetch_add(1, Ordering::SeqCst);
    }
}

pub async fn two_hundred_tasks_read_and_write<D: Deployment>(on: &D) {
    let clients = join_all((0..4).map(|_| on.client())).await;
    let cell = Arc::new(Cell::default());
    let tasks = (0..200).map(|task| {
        let lock = clients[task % 4].rw_lock("a");
        let lock = match task % 8 / 4 {
            0 => lock,
            _ => lock.cached(),
        };
        let cell = cell.clone();
        tokio::spawn(async move {
            for round in 0..5 {
                match (task + round) % 10 {
                    0 => {
                        let writer = lock.write().await.expect("it is granted");
                        cell.write(&writer).await;
                        let reader = writer.downgrade().await.expect("it is held");
                        cell.read(&reader).await;
                    }
                    1 => {
                        let lock = lock.clone().with_owner(&Owner::new());
                        let reader = lock.read().await.expect("it is granted");
                        cell.read(&reader).await;
                        reader.unlock().await.expect("it is held");
                    }
                    _ => {
                        let reader = lock.read().await.expect("it is granted");
                        cell.read(&reader).await;
                    }
                }
            }
        })
    });
    for task in soon("all tasks", join_all(tasks)).await {
        task.expect("no panic");
    }
    let writer = wait_to_write(&clients[0].rw_lock("a")).await;
    writer.unlock().await.expect("it is held");
    until_free(&clients[0], "a").await;
    for client in &clients {
        until("empty books", async || entries(client) == 0).await;
    }
}
