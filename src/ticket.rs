//! Who asks: a client, and each of its attempts.

use std::fmt;

use uuid::Uuid;

use crate::chance;
use crate::sync::{AtomicU64, Ordering};
use std::sync::Arc;

/// The random identity of one client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(Uuid);

impl ClientId {
    pub fn random() -> Self {
        Self(chance::identity())
    }

    /// The id in the form that the server stores; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Uuid::try_parse(text).ok()?;
        // Other spellings of the same UUID (braces, upper case) are not ours.
        (id.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text).then_some(Self(id))
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One attempt of one client on one lock, never used again. It is the place in the queue, and after the grant it
/// is the hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub client: ClientId,
    pub number: u64,
}

impl Ticket {
    /// Reads `<client-id>:<n>`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (client, digits) = text.split_once(':')?;
        let number: u64 = digits.parse().ok()?;
        // "+1" and "01" parse, and would be second names of one ticket.
        (number.to_string() == digits).then_some(Self { client: ClientId::parse(client)?, number })
    }
}

impl Ticket {
    /// Appends what it displays as to `text`: for a call, at a quarter of the price of formats.
    pub fn write(&self, text: &mut String) {
        let mut buffer = Uuid::encode_buffer();
        text.push_str(self.client.0.as_hyphenated().encode_lower(&mut buffer));
        text.push(':');
        text.push_str(&self.number.to_string());
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Mints a client's tickets.
#[derive(Clone, Debug)]
pub struct Tickets {
    client: ClientId,
    last: Arc<AtomicU64>,
}

impl Tickets {
    pub fn new(client: ClientId) -> Self {
        Self { client, last: Arc::new(AtomicU64::new(0)) }
    }

    pub fn client(&self) -> ClientId {
        self.client
    }

    /// A ticket that no earlier call has returned.
    pub fn next(&self) -> Ticket {
        Ticket { client: self.client, number: self.last.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_reads_back_and_nothing_else_reads_as_one() {
        let ticket = Tickets::new(ClientId::random()).next();
        assert_eq!(Ticket::parse(&ticket.to_string()), Some(ticket));
        let client = ticket.client.to_string();
        for odd in ["", ":", "x:1", &format!("{client}:"), &format!("{client}:01"), &format!("{client}:+1")] {
            assert_eq!(Ticket::parse(odd), None, "{odd:?}");
        }
        assert_eq!(Ticket::parse(&format!("{}:1", client.to_uppercase())), None);
        assert_eq!(Ticket::parse(&format!("{{{client}}}:1")), None);
    }
}
