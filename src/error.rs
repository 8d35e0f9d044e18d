//! What can go wrong, one type for each operation whose outcomes differ. Contention is never an error.

use std::time::Duration;

use thiserror::Error;

/// A name that no lock can have.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The name is empty.
    #[error("the name of a lock must not be empty")]
    Empty,
    /// The name has more than 512 bytes of UTF-8.
    #[error("the name of a lock has at most 512 bytes, this one {bytes}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
}

/// A namespace that no client can have.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InvalidNamespace {
    /// The namespace is empty.
    #[error("a namespace must not be empty")]
    Empty,
    /// The namespace has more than 64 bytes.
    #[error("a namespace has at most 64 bytes, this one {bytes}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A character other than `A-Z a-z 0-9 . _ : -`.
    #[error("a namespace is made of A-Z a-z 0-9 . _ : - and cannot contain {found:?}")]
    Character {
        /// The first such character.
        found: char,
    },
}

/// A lease outside its bounds.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InvalidLease {
    /// Shorter than 100 ms.
    #[error("a lease is at least 100 ms long, not {length:?}")]
    TooShort {
        /// The length that was asked for.
        length: Duration,
    },
    /// Longer than 24 h.
    #[error("a lease is at most 24 h long, not {length:?}")]
    TooLong {
        /// The length that was asked for.
        length: Duration,
    },
}

/// What a server may answer to, or keep from, any operation. The public errors have these as variants of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the public errors say it")]
pub enum Fault {
    Unavailable { detail: String },
    Unauthorized { missing: String },
    OutOfMemory,
    ReadOnly,
    Unsupported { detail: String },
    Rejected { detail: String },
    Closed,
}

/// Makes an error type with the variants of [`Fault`] beside its own.
macro_rules! operation_error {
    ($(#[$meta:meta])* $name:ident { $($own:tt)* }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Debug, Error)]
        #[non_exhaustive]
        pub enum $name {
            $($own)*
            /// No server answered for as long as the client was told to wait (`unavailable_after`, 10 s by
            /// default). Whether the operation took effect is unknown; the client undoes what it may have done
            /// as soon as it can.
            #[error("no answer from the server: {detail}")]
            Unavailable {
                /// The last that was heard, in words.
                detail: String,
            },
            /// The server refuses the client, or a right that the client needs.
            #[error("not authorized: {missing}")]
            Unauthorized {
                /// What is missing, in the server's words or ours.
                missing: String,
            },
            /// The server is over its memory limit and takes no new locks. Releases and renewals still work.
            #[error("the server is out of memory")]
            OutOfMemory,
            /// The server is a replica, or refuses writes (`READONLY`, `MISCONF`, `NOREPLICAS`).
            #[error("the server does not take writes")]
            ReadOnly,
            /// The server lacks what this library needs.
            #[error("unsupported server: {detail}")]
            Unsupported {
                /// What it lacks.
                detail: String,
            },
            /// The server refused the call for a reason that this library does not know. A Lua error names the
            /// script and its line.
            #[error("the server refused the call: {detail}")]
            Rejected {
                /// The server's text.
                detail: String,
            },
            /// The client was closed, or the runtime that it lived on is gone.
            #[error("the client is closed")]
            Closed,
        }

        impl From<Fault> for $name {
            fn from(fault: Fault) -> Self {
                match fault {
                    Fault::Unavailable { detail } => Self::Unavailable { detail },
                    Fault::Unauthorized { missing } => Self::Unauthorized { missing },
                    Fault::OutOfMemory => Self::OutOfMemory,
                    Fault::ReadOnly => Self::ReadOnly,
                    Fault::Unsupported { detail } => Self::Unsupported { detail },
                    Fault::Rejected { detail } => Self::Rejected { detail },
                    Fault::Closed => Self::Closed,
                }
            }
        }
    };
}

operation_error! {
    /// Why a client could not connect.
    ConnectError {
        /// The URL is none that this library understands. Its text is not repeated: it may hold a password.
        #[error("invalid URL: {reason}")]
        InvalidUrl {
            /// What is wrong with it.
            reason: String,
        },
        /// The namespace.
        #[error("{0}")]
        InvalidNamespace(#[from] InvalidNamespace),
        /// The default lease.
        #[error("{0}")]
        InvalidLease(#[from] InvalidLease),
        /// A setting of the builder is outside its bounds.
        #[error("invalid setting: {reason}")]
        InvalidSetting {
            /// Which one, and its bounds.
            reason: String,
        },
        /// Clients that store their locks in another way use this namespace.
        #[error("this namespace has locks of layout {found}, and this client knows layout {known} only")]
        LayoutMismatch {
            /// What the server's layout key says.
            found: String,
            /// The layout of this client.
            known: u32,
        },
    }
}

operation_error! {
    /// Why a lock could not be acquired. That somebody else holds it is not an error.
    LockError {
        /// The name of the lock.
        #[error("{0}")]
        InvalidName(#[from] InvalidName),
        /// The lease that was asked for.
        #[error("{0}")]
        InvalidLease(#[from] InvalidLease),
        /// `with_max_hold` was given no time at all: such a guard would be lost before anybody could use it.
        #[error("a lock that is held for no time at all")]
        InvalidMaxHold,
        /// A lock of another kind has this name. Nothing was touched.
        #[error("this name is in use by a lock of another kind: {found}")]
        KindMismatch {
            /// The kind of lock that is there.
            found: String,
        },
        /// A key of this lock is in use by something that is not lockwright. Nothing was touched.
        #[error("the key {key:?} is in use by something else")]
        ForeignKey {
            /// The key.
            key: String,
        },
        /// The owner reads a read/write lock and asks to write it: it would wait for itself.
        #[error("the owner reads this lock, and would wait for itself to write it")]
        WouldDeadlock,
    }
}

/// Why a guard stopped being one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum LossReason {
    /// The hold was not renewed in time (or its fixed lease, or its `max_hold`, ended).
    #[error("the lease ended")]
    Expired,
    /// Somebody called `force_release`.
    #[error("the lock was released by force")]
    TakenByForce,
    /// The server no longer knew of the hold: its data was lost, or the key was deleted. Heard at the next renewal,
    /// within a third of the lease: somebody else may have had the lock meanwhile.
    #[error("the server no longer has this hold")]
    GoneAtServer,
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
}

/// Why `unlock` could not say that the lock was released by it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum UnlockError {
    /// The hold was lost before: somebody else may have held the lock meanwhile.
    #[error("the lock was lost before it was released: {0}")]
    Lost(LossReason),
    /// No answer in time. The release goes on in the background; at the latest the lease ends the hold.
    #[error("no answer to the release yet ({detail}); it goes on in the background")]
    Unanswered {
        /// The last that was heard, in words.
        detail: String,
    },
}

operation_error! {
    /// Why a hold could not be made longer.
    ExtendError {
        /// The hold is gone.
        #[error("the lock was lost: {0}")]
        Lost(LossReason),
        /// The length that was asked for.
        #[error("{0}")]
        InvalidLease(#[from] InvalidLease),
        /// The guard's `max_hold` ends it before that.
        #[error("the longest time that this guard may be held ends in {left:?}")]
        MaxHold {
            /// What is left of it.
            left: Duration,
        },
    }
}

/// Why a write did not become a read. Nothing is held then, neither the write nor a read: what may be left at the server
/// is given back in the background.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DowngradeError {
    /// The write was lost before: somebody else may have written meanwhile.
    #[error("the lock was lost before the write became a read, and is not held: {0}")]
    Lost(LossReason),
    /// The server could not be asked, or refused.
    #[error("the write did not become a read, and the lock is not held: {0}")]
    Failed(LockError),
}

operation_error! {
    /// Why a fenced value was not written, or could not be read.
    FencedError {
        /// The name of the key.
        #[error("{0}")]
        InvalidName(#[from] InvalidName),
        /// 2^53 or more: no grant carries such a token.
        #[error("{token} is no fencing token: they are below 2^53")]
        InvalidToken {
            /// The token.
            token: u64,
        },
        /// A larger token has written before: whoever has this one lost its lock.
        #[error("a holder with the larger token {largest} has written before")]
        Stale {
            /// The largest token that has written.
            largest: u64,
        },
        /// The key is in use by something that is not lockwright. Nothing was touched.
        #[error("the key {key:?} is in use by something else")]
        ForeignKey {
            /// The key.
            key: String,
        },
    }
}

operation_error! {
    /// Why a server did not answer a ping.
    PingError {}
}

/// Why a section that ran under a lock has no result.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The lock was not acquired, and the section not begun.
    #[error("{0}")]
    Lock(#[from] LockError),
    /// The lock was lost before the section had ended and the lock was released. The section's future was dropped
    /// where it stood, or its result was.
    #[error("the lock was lost under the section: {0}")]
    Lost(LossReason),
}

/// Why a lock was not obtained at once.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum NotObtained {
    /// Others hold it, or wait for it in this process.
    #[error("the lock is held by others")]
    Held,
    /// It could not be asked for.
    #[error("{0}")]
    Failed(#[from] LockError),
}
