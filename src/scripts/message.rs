//! The messages that scripts send to clients.

use super::Kind;
use crate::name::LockKeys;
use crate::ticket::Ticket;

/// A message on a client's channel. It is a hint, never a proof: anybody who may publish may have sent it.
///
/// It names the lock, so that a client which no longer knows the ticket can give it back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub ticket: Ticket,
    pub kind: Kind,
    pub keys: LockKeys,
    pub news: News,
}

/// What a message says of its ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// The lock was handed over to it. `waiting`: others wait behind it.
    Grant { token: u64, end_millis: u64, now_millis: u64, waiting: bool },
    /// Somebody waits for what it holds.
    Held,
    /// Its hold was ended by force.
    Lost { token: u64 },
}

/// The largest number that a script can send: Lua's numbers skip some from there on. What is forged may have more, and
/// nobody should have to reckon with an overflow.
const LARGEST: u64 = 1 << 53;

impl Message {
    /// Reads a message; `None` for anything that is none. The key comes last: it may contain spaces.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (word, rest) = text.split_once(' ')?;
        let (ticket, rest) = rest.split_once(' ')?;
        let fields = match word {
            "grant" => 4,
            "held" => 0,
            "lost" => 1,
            _ => return None,
        };
        let mut words = rest.splitn(fields + 2, ' ');
        let mut number = || words.next()?.parse().ok().filter(|number| *number <= LARGEST);
        let news = match word {
            "grant" => News::Grant {
                token: number()?,
                end_millis: number()?,
                now_millis: number()?,
                waiting: match number()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
            },
            "held" => News::Held,
            _ => News::Lost { token: number()? },
        };
        let (kind, keys) = (Kind::parse(words.next()?)?, LockKeys::parse(words.next()?)?);
        Some(Self { ticket: Ticket::parse(ticket)?, kind, keys, news })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKET: &str = "0f0e0d0c-0b0a-4908-8706-050403020100:7";

    #[test]
    fn what_our_scripts_send_is_read() {
        let (ticket, kind) = (Ticket::parse(TICKET).unwrap(), Kind::Reentrant);
        let keys = LockKeys::parse("lw:{a b}").unwrap();
        let parse = |text: String| Message::parse(text.as_bytes());
        let message = |news| Some(Message { ticket, kind, keys: keys.clone(), news });
        let grant = News::Grant { token: 1, end_millis: 2, now_millis: 3, waiting: true };
        assert_eq!(parse(format!("grant {TICKET} 1 2 3 1 reentrant lw:{{a b}}")), message(grant));
        assert_eq!(parse(format!("held {TICKET} reentrant lw:{{a b}}")), message(News::Held));
        assert_eq!(parse(format!("lost {TICKET} 9 reentrant lw:{{a b}}")), message(News::Lost { token: 9 }));
    }

    #[test]
    fn nothing_else_is() {
        let odd = [
            String::new(),
            "grant".into(),
            "held x:1 reentrant lw:{a}".into(),
            format!("grant {TICKET} 1 2 3 reentrant lw:{{a}}"),
            format!("grant {TICKET} 1 2 3 2 reentrant lw:{{a}}"),
            format!("grant {TICKET} -1 2 3 0 reentrant lw:{{a}}"),
            format!("grant {TICKET} 99999999999999999999 2 3 0 reentrant lw:{{a}}"),
            format!("grant {TICKET} 9007199254740993 2 3 0 reentrant lw:{{a}}"),
            format!("grant {TICKET} 1 18446744073709551615 3 0 reentrant lw:{{a}}"),
            format!("held {TICKET} "),
            format!("held {TICKET} reentrant"),
            format!("held {TICKET} reentrant lw:a"),
            format!("held {TICKET} other lw:{{a}}"),
            format!("lost {TICKET} reentrant lw:{{a}}"),
            format!("Held {TICKET} reentrant lw:{{a}}"),
        ];
        for text in odd {
            assert_eq!(Message::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Message::parse(&[0xff, 0xfe]), None);
    }
}
