//! The messages that scripts send to clients.

use crate::ticket::Ticket;

/// A message on a client's channel. It is a hint, never a proof: anybody who may publish may have sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// The lock was handed over to this ticket.
    Grant { ticket: Ticket, token: u64, end_millis: u64, now_millis: u64 },
    /// Somebody waits for what this ticket holds.
    Held { ticket: Ticket },
    /// This ticket's hold was ended by force.
    Lost { ticket: Ticket, token: u64 },
}

impl Message {
    /// Reads a message; `None` for anything that is none.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let word = words.next()?;
        let ticket = Ticket::parse(words.next()?)?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let message = match word {
            "grant" => Self::Grant { ticket, token: number()?, end_millis: number()?, now_millis: number()? },
            "held" => Self::Held { ticket },
            "lost" => Self::Lost { ticket, token: number()? },
            _ => return None,
        };
        words.next().is_none().then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKET: &str = "0f0e0d0c-0b0a-4908-8706-050403020100:7";

    #[test]
    fn what_our_scripts_send_is_read() {
        let ticket = Ticket::parse(TICKET).unwrap();
        let parse = |text: String| Message::parse(text.as_bytes());
        let grant = Message::Grant { ticket, token: 1, end_millis: 2, now_millis: 3 };
        assert_eq!(parse(format!("grant {TICKET} 1 2 3")), Some(grant));
        assert_eq!(parse(format!("held {TICKET}")), Some(Message::Held { ticket }));
        assert_eq!(parse(format!("lost {TICKET} 9")), Some(Message::Lost { ticket, token: 9 }));
    }

    #[test]
    fn nothing_else_is() {
        let odd = [
            String::new(),
            "grant".into(),
            "held x:1".into(),
            format!("grant {TICKET} 1 2"),
            format!("grant {TICKET} 1 2 3 4"),
            format!("grant {TICKET} -1 2 3"),
            format!("grant {TICKET} 99999999999999999999 2 3"),
            format!("held {TICKET} "),
            format!("lost {TICKET}"),
            format!("Held {TICKET}"),
        ];
        for text in odd {
            assert_eq!(Message::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Message::parse(&[0xff, 0xfe]), None);
    }
}
