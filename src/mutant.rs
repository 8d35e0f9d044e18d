//! Faults that the simulation puts into this client on purpose, to prove that it would find them. Nothing outside
//! this repository's own tests can switch one on.

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

/// Makes `mutant` the active one of this thread.
#[cfg(lockwright_internals)]
pub fn activate(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}
