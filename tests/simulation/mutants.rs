//! Rules broken on purpose, one at a time: the harness must find each, or it would not find the mistake either.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use lockwright::internals::mutant::Mutant;
use lockwright::internals::scripts::Script;

use crate::report::{Outcome, play};
use crate::world::Recipe;

/// One broken rule.
#[derive(Debug)]
pub struct Mutation {
    pub number: u32,
    pub rule: &'static str,
    pub broken: Broken,
    /// The kind of history that shows it best.
    pub mix: &'static str,
    /// Within how many of them it is found.
    pub within: u64,
}

#[derive(Debug)]
pub enum Broken {
    InClient(Mutant),
    InScripts(Rewrite),
}

/// Changed scripts.
#[derive(Debug)]
pub struct Rewrite {
    /// Each piece, and what stands there instead; `base` first.
    base: &'static [(&'static str, &'static str)],
    pieces: &'static [(&'static str, &'static str)],
    made: OnceLock<BTreeMap<&'static str, &'static Script>>,
}

impl Rewrite {
    pub const fn new(pieces: &'static [(&'static str, &'static str)]) -> Self {
        Self { base: &[], pieces, made: OnceLock::new() }
    }

    /// The same, with the queue's limits as small as [`SHORT_QUEUE`]'s.
    pub const fn on_short_queue(pieces: &'static [(&'static str, &'static str)]) -> Self {
        Self { base: SHORT, pieces, made: OnceLock::new() }
    }

    /// The script that runs in the place of this one.
    pub fn of(&self, script: &'static Script) -> &'static Script {
        self.made.get_or_init(|| self.make()).get(script.name).copied().unwrap_or(script)
    }

    fn make(&self) -> BTreeMap<&'static str, &'static Script> {
        let all = lockwright::internals::scripts::ALL;
        let pieces = || self.base.iter().chain(self.pieces);
        for (piece, _) in pieces() {
            // So that no mutant dies of old age.
            assert!(all.iter().any(|script| script.text.contains(piece)), "no script has {piece:?} any more");
        }
        let change = |text: String, &(piece, instead): &(&str, &str)| text.replace(piece, instead);
        all.iter()
            .map(|script| {
                let text = pieces().fold(script.text.to_owned(), change).leak();
                let Script { name, version, parts, .. } = **script;
                (name, &*Box::leak(Box::new(Script { name, version, text, parts })))
            })
            .collect()
    }
}

/// The queue's limits, so small that a history meets them: how much of it one call looks at, and when it is written
/// anew.
pub static SHORT_QUEUE: Rewrite = Rewrite::on_short_queue(&[]);
pub const SHORT_LIMIT: usize = 6;

const SHORT: &[(&str, &str)] = &[
    ("walked >= 256", "walked >= 6"),
    ("#call.run >= 64", "#call.run >= 4"),
    ("math.min(64, 256 - walked)", "math.min(3, 6 - walked)"),
    // How many reads are told in a call, here one and those that end with it.
    ("'LIMIT', 255, 1)", "'LIMIT', 0, 1)"),
    ("KEYS[6], 0, 255)", "KEYS[6], 0, 0)"),
    ("dead <= 1000", "dead <= 6"),
];

impl Mutation {
    pub fn rewrite(&self) -> Option<&Rewrite> {
        match &self.broken {
            Broken::InClient(_) => None,
            Broken::InScripts(rewrite) => Some(rewrite),
        }
    }

    pub fn in_client(&self) -> Option<Mutant> {
        match self.broken {
            Broken::InClient(mutant) => Some(mutant),
            Broken::InScripts(_) => None,
        }
    }

    /// The first history of `first..` that shows it, and how many it took.
    pub fn find(&'static self, first: u64) -> Option<(u64, Outcome)> {
        (first..first + self.within).zip(1..).find_map(|(seed, tries)| {
            let outcome = play(Recipe { seed, mix: Some(self.mix), traced: false, mutant: Some(self) });
            (outcome.failures().count() > 0).then_some((tries, outcome))
        })
    }
}

/// Numbered as in the list of faults that this harness answers to.
pub static ALL: [Mutation; 21] = [
    Mutation {
        number: 1,
        rule: "a ticket is used for one attempt",
        broken: Broken::InClient(Mutant::TicketUsedTwice),
        mix: "late",
        within: 400,
    },
    Mutation {
        number: 2,
        rule: "a leaving is bound to its ticket, not to who sent it",
        broken: Broken::InScripts(Rewrite::new(&[(
            "  greet_client(call, waiting, ticket)\n",
            "  for _, held in ipairs(lock.tickets) do\n    \
             if client_of(held) == client_of(ticket) then ticket = held end\n  end\n  \
             greet_client(call, waiting, ticket)\n",
        )])),
        mix: "late",
        within: 400,
    },
    Mutation {
        number: 3,
        rule: "a renewal never revives a hold that has ended",
        broken: Broken::InScripts(Rewrite::new(&[(
            "  if not lease_end or tonumber(lease_end) <= now then return -1, waits end\n",
            "  if not lease_end then\n    lease_end, tail = '0', ' -'\n    \
             if not held[1] then\n      redis.call('HSET', keys.lock, 'kind', 'reentrant', 'mode', 'exclusive', \
             'owner', '-', 'token', '1', 'block', '1')\n    end\n  end\n",
        )])),
        mix: "late",
        within: 400,
    },
    Mutation {
        number: 4,
        rule: "a request that was stuck changes nothing",
        broken: Broken::InClient(Mutant::NoDeadline),
        mix: "late",
        within: 400,
    },
    Mutation {
        number: 5,
        rule: "a grant by message is good until its deadline",
        broken: Broken::InClient(Mutant::GrantWithoutDeadline),
        mix: "all",
        within: 2_000,
    },
    Mutation {
        number: 6,
        rule: "a ticket that the client does not know is given back",
        broken: Broken::InClient(Mutant::UnknownTicketKept),
        mix: "ghosts",
        within: 2_000,
    },
    Mutation {
        number: 7,
        rule: "a missed claim cuts the client's deadline",
        broken: Broken::InScripts(Rewrite::new(&[(
            "    client.deadline = math.min(client.deadline, grant.ends)\n",
            "",
        )])),
        mix: "processes",
        within: 2_000,
    },
    Mutation {
        number: 8,
        rule: "a ticket that cannot be reached keeps its place",
        broken: Broken::InScripts(Rewrite::new(&[(
            "  client.unreachable, entry.met = true, true\n  return 'kept'\n",
            "  client.unreachable = true\n  drop_ticket(waiting, ticket)\n  return 'dead'\n",
        )])),
        mix: "outages",
        within: 400,
    },
    Mutation {
        number: 9,
        rule: "validity counts from the sending of a request",
        broken: Broken::InClient(Mutant::ValidityFromReply),
        mix: "late",
        within: 2_000,
    },
    Mutation {
        number: 10,
        rule: "a token is never behind the clock",
        broken: Broken::InScripts(Rewrite::new(&[
            ("math.max(call.stored + 1, call.micros)", "call.stored + 1"),
            ("math.ceil((first - call.micros) / 1000)", "0"),
        ])),
        mix: "loss",
        within: 400,
    },
    Mutation {
        number: 11,
        rule: "a hold is in the watchdog's books from its grant on",
        broken: Broken::InClient(Mutant::ArmedLate),
        mix: "none",
        within: 400,
    },
    Mutation {
        number: 12,
        rule: "everybody polls after a gap in the messages",
        broken: Broken::InClient(Mutant::NoPollAfterGap),
        mix: "outages",
        within: 400,
    },
    Mutation {
        number: 13,
        rule: "a clock sample ends with its connection",
        broken: Broken::InClient(Mutant::SampleKept),
        mix: "failovers",
        within: 4_000,
    },
    Mutation {
        number: 14,
        rule: "an owner that is inside is let in past waiting writes",
        broken: Broken::InScripts(Rewrite::new(&[(
            "lock.mode == 'read' and is_reading(call, lock))\n",
            "lock.mode == 'read' and me.mode == 'write' and is_reading(call, lock))\n",
        )])),
        mix: "shared",
        within: 400,
    },
    Mutation {
        number: 15,
        rule: "each read has a lease of its own",
        broken: Broken::InScripts(Rewrite::new(&[(
            "    redis.call('ZADD', keys.readers, 'XX', int(ends), ticket)\n",
            "    for _, other in ipairs(redis.call('ZRANGE', keys.readers, 0, -1)) do\n      \
             redis.call('ZADD', keys.readers, 'XX', int(ends), other)\n      \
             redis.call('HSET', keys.lock, other, int(ends) .. tail)\n    end\n",
        )])),
        mix: "shared",
        within: 400,
    },
    Mutation {
        number: 16,
        rule: "who downgrades is told that a write waits",
        broken: Broken::InScripts(Rewrite::new(&[(
            "return { 'granted', call.now, lock.token, left, others_wait(waiting, 'read') }\n",
            "return { 'granted', call.now, lock.token, left, 0 }\n",
        )])),
        mix: "shared",
        within: 400,
    },
    Mutation {
        number: 17,
        rule: "an owner\'s read is nobody else\'s",
        broken: Broken::InClient(Mutant::OwnersReadShared),
        mix: "shared",
        within: 400,
    },
    Mutation {
        number: 18,
        rule: "tickets out of reach are pushed back in their order",
        broken: Broken::InScripts(Rewrite::on_short_queue(&[(
            "for at = #kept, 1, -1 do back[#back + 1] = kept[at] end",
            "for at = 1, #kept do back[#back + 1] = kept[at] end",
        )])),
        mix: "fair tries",
        within: 400,
    },
    Mutation {
        number: 19,
        rule: "tickets out of reach are pushed back to where they stood",
        broken: Broken::InScripts(Rewrite::on_short_queue(&[(
            "redis.call('LPUSH', call.queue, unpack(back))",
            "redis.call('RPUSH', call.queue, unpack(kept))",
        )])),
        mix: "fair tries",
        within: 400,
    },
    Mutation {
        number: 20,
        rule: "who joins anew joins at the tail",
        broken: Broken::InScripts(Rewrite::new(&[(
            "walked - front > #kept",
            "walked - front - #kept >= 64",
        )])),
        mix: "fair all",
        within: 400,
    },
    Mutation {
        number: 21,
        rule: "reads that one call did not tell are told by the next",
        broken: Broken::InScripts(Rewrite::on_short_queue(&[("last and 1 or 0\n", "0\n")])),
        mix: "shared crowd",
        within: 400,
    },
];
