//! Faults that the simulation and the models of tests/loom put into this client on purpose, to prove that they would
//! find them. Nothing outside this repository's own tests can switch one on.

use crate::sync::{Mutex, MutexGuard, lock};

/// A rule that is broken while its mutant is active, numbered as the tests name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// 1: the leaving queues the very ticket that it gives back.
    TicketUsedTwice,
    /// 4: a request that was stuck for however long is still good.
    NoDeadline,
    /// 5: a grant by message is taken however old it is.
    GrantWithoutDeadline,
    /// 6: a ticket that this client does not know is not given back.
    UnknownTicketKept,
    /// 9: the validity counts from the reply.
    ValidityFromReply,
    /// 11: a hold is not entered in the watchdog's books with its grant.
    ArmedLate,
    /// 12: nobody polls after a reconnect or lost messages.
    NoPollAfterGap,
    /// 13: the clock sample of one server is used for the next.
    SampleKept,
    /// 17: others read by the hold that an owner has under its write.
    OwnersReadShared,

    // What must be one step is two:
    /// the look at what is due, and the note of when the watchdog looks next;
    ArmedApart,
    /// an event, and the sending of what it leaves to be sent;
    SentApart,
    /// the look for a loss, and a renewal's new validity;
    TrustedApart,
    /// the look for a wait's outcome, and the registration of its waker;
    RegisteredApart,
    /// the look for a loss, and the registration of a watcher's waker;
    WatchedApart,
    /// the look for what a dropped wait was given, and its end;
    AbandonedApart,
    /// the look whether a gate is empty, and its closing;
    ClosedApart,
    /// the look whether a gate is empty, and its closing where it is;
    EmptiedApart,
    /// the look whether a parcel was woken while it was polled, and its parking;
    ParkedApart,
    /// the look whether more was posted, and the end of whoever sets out with it;
    TurnEndedApart,
    /// the taking of all that is left when the courier's task ends, and its end.
    EndedApart,
}

#[cfg(lockwright_internals)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether `mutant` is active on this thread.
#[inline]
pub fn is(mutant: Mutant) -> bool {
    #[cfg(lockwright_internals)]
    return ACTIVE.get() == Some(mutant);
    #[cfg(not(lockwright_internals))]
    {
        let _ = mutant;
        false
    }
}

/// `section` itself; a second section of the same mutex, where `mutant` ends the first one in the middle.
#[inline]
pub fn apart<'a, T>(mutex: &'a Mutex<T>, section: MutexGuard<'a, T>, mutant: Mutant) -> MutexGuard<'a, T> {
    if !is(mutant) {
        return section;
    }
    drop(section);
    lock(mutex)
}

/// Makes `mutant` the active one of this thread.
#[cfg(lockwright_internals)]
pub fn activate(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}
