//! What a client owes after it has heard something: to ask, or to give back. Judged while the history runs, since
//! what is not done in time is often done in the end.

use lockwright::internals::scripts::Message;
use lockwright::internals::ticket::Ticket;

use crate::client::Life;
use crate::dice::{MILLI, Nanos};
use crate::faults::Incident;
use crate::world::{Event, World};

/// Something that a client must have done by a certain time.
#[derive(Clone, Debug)]
pub struct Debt {
    pub client: usize,
    pub lock: String,
    pub ticket: Ticket,
    pub since: Nanos,
    pub what: Owed,
}

#[derive(Clone, Copy, Debug)]
pub enum Owed {
    /// It may have missed messages: a ticket of its that waits must be asked for.
    Poll,
    /// It was told of a ticket that it had given back: that must not stay a hold.
    Leaving,
}

/// As long as an asking, or a leaving, that is under way may go unanswered.
const SOON: Nanos = 800 * MILLI;

impl World {
    pub fn expect_poll(&mut self, client: usize) {
        if let Some((lock, ticket)) = self.audit.waits(&self.processes[client].id) {
            let (since, what) = (self.now, Owed::Poll);
            self.after(SOON + 4 * self.hop(), Event::Owed(Debt { client, lock, ticket, since, what }));
        }
    }

    pub fn expect_leaving(&mut self, client: usize, text: &[u8]) {
        if self.processes[client].life != Life::Running {
            return;
        }
        let Some(message) = Message::parse(text) else { return };
        let (lock, ticket) = (message.keys.lock().to_owned(), message.ticket);
        if self.audit.is_departed(&lock, ticket) {
            let (since, what) = (self.now, Owed::Leaving);
            self.after(SOON + 4 * self.hop(), Event::Owed(Debt { client, lock, ticket, since, what }));
        }
    }

    /// Looks whether a debt was paid. Whoever was disturbed meanwhile is let off.
    pub fn collect(&mut self, debt: &Debt) {
        let &Debt { client, ref lock, ticket, since, what } = debt;
        let (disturbed, waits) = self.book.with(|history| {
            let touches = |incident: &&Incident| incident.client.is_none_or(|touched| touched == client);
            let mut mine = history.incidents.iter().filter(touches);
            (mine.any(|incident| incident.ended > since), history.waits_in_vain(client, since))
        });
        if disturbed || self.processes[client].life != Life::Running || self.links[client].incident.is_some()
        {
            return;
        }
        let unpaid = match what {
            Owed::Poll => {
                waits && self.links[client].last_asked < since && self.audit.still_waits(lock, ticket, since)
            }
            Owed::Leaving => {
                let held = self.server.held(lock);
                // A request that was late may have brought it back since then.
                let old = self.audit.granted_before(lock, ticket, held.token, since);
                old && held.holds.iter().any(|&(holder, _)| holder == ticket)
            }
        };
        if unpaid {
            let rule = match what {
                Owed::Poll => "polls",
                Owed::Leaving => "ghosts",
            };
            self.book.violation(rule, format!("client {client} owes since {since}: {what:?} of {ticket}"));
        }
    }
}
