//! What the workers reported, and the judge: the grants of a lock in the order of their tokens are the order that
//! everything else must agree with.

use std::collections::BTreeMap;

/// One hold, times in ns on the clock of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// A reader's is its version, which others have, too.
    pub token: u64,
    pub reads: bool,
    pub asked: u64,
    pub granted: u64,
    /// Until when its holder was seen to trust it.
    pub end: u64,
    /// Since when it was known to be in the queue; 0 where it never was.
    pub queued: u64,
    pub worker: usize,
}

/// A time in which the server lost data.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub began: u64,
    pub ended: u64,
    /// The same on the server's clock, in microseconds, which is what tokens count.
    pub first_token: u64,
    pub last_token: u64,
}

/// A time in which a client, or every one, may have lost its place in a queue, or may not have heard of its turn.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    pub worker: Option<usize>,
    pub began: u64,
    pub ended: u64,
}

/// Two holds that contradict each other, the smaller token first.
type Pair = (Hold, Hold);

#[derive(Default)]
pub struct History {
    /// By lock, then by the worker's name for it.
    holds: BTreeMap<usize, BTreeMap<String, Hold>>,
    locks: BTreeMap<String, usize>,
    pub refused: Vec<(u64, String)>,
    pub odd: Vec<String>,
    pub losses: Vec<Loss>,
    pub troubles: Vec<Trouble>,
    pub operations: u64,
    pub failures: u64,
    pub last_grant: BTreeMap<usize, u64>,
}

impl History {
    pub fn grants(&self) -> usize {
        self.holds.values().map(BTreeMap::len).sum()
    }

    /// Takes one line of the `worker`, a name that no other process has.
    pub fn take(&mut self, worker: usize, line: &str) {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let id = format!("{worker}.{}", words.next().unwrap_or_default());
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        match (kind, numbers.as_slice()) {
            ("grant" | "read", &[lock, token, asked, granted, end, queued]) => {
                let lock = usize::try_from(lock).expect("few locks");
                self.locks.insert(id.clone(), lock);
                let reads = kind == "read";
                let hold = Hold { token, reads, asked, granted, end, queued, worker };
                self.holds.entry(lock).or_default().insert(id, hold);
                // A kept read is granted here, whatever becomes of the server.
                if !reads {
                    self.last_grant.insert(lock, granted);
                }
            }
            ("seen", &[end]) => self.with(&id, |hold| hold.end = hold.end.max(end)),
            ("end", &[end]) => self.with(&id, |hold| hold.end = end),
            ("refused", &[at, _]) => self.refused.push((at, line.to_owned())),
            ("done", &[failures]) => {
                self.operations +=
                    line.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
                self.failures += failures;
            }
            ("stall", &[began, ended]) => {
                self.troubles.push(Trouble { worker: Some(worker), began, ended });
            }
            ("connected", _) => {}
            _ => self.odd.push(format!("worker {worker}: {line}")),
        }
    }

    fn with(&mut self, id: &str, change: impl FnOnce(&mut Hold)) {
        let hold = self.locks.get(id).and_then(|lock| self.holds.get_mut(lock)?.get_mut(id));
        if let Some(hold) = hold {
            change(hold);
        }
    }

    /// How many waits in a queue there were in whose time nothing excuses that a later one is served before them.
    pub fn waits_in_order(&self) -> usize {
        self.holds
            .values()
            .flat_map(BTreeMap::values)
            .filter(|hold| hold.queued > 0 && !self.troubled(hold))
            .count()
    }

    /// How often a read came next to a write, in the order of their versions: so often it was judged that nobody reads
    /// what is being written.
    pub fn reads_beside_writes(&self) -> usize {
        let beside = |holds: &BTreeMap<String, Hold>| {
            let holds = in_order(holds);
            holds.windows(2).filter(|pair| pair[0].reads != pair[1].reads).count()
        };
        self.holds.values().map(beside).sum()
    }

    /// The violations, and how many overlaps lost data explains.
    pub fn judge(&self) -> (Vec<String>, usize) {
        let (mut violations, mut excused) = (self.odd.clone(), 0);
        for (lock, holds) in &self.holds {
            let holds = in_order(holds);
            let twice = holds.windows(2).filter(|pair| pair[0].token == pair[1].token && !both_read(pair));
            violations.extend(twice.map(|pair| format!("lock {lock}: a token twice: {pair:?}")));
            let disorder = misordered(&holds).into_iter().map(|pair| ("order", pair));
            for (rule, pair) in disorder.chain(overlaps(&holds).into_iter().map(|pair| ("overlap", pair))) {
                if self.separates(&pair) {
                    excused += 1;
                } else {
                    violations.push(format!("lock {lock}: {rule}: {pair:?}"));
                }
            }
            for pair in inversions(&holds) {
                if !self.troubled(&pair.1) && !self.separates(&pair) {
                    violations.push(format!("lock {lock}: turn: {pair:?}"));
                }
            }
        }
        for (at, what) in &self.refused {
            // Whoever lost its hold with the data learns it at its next renewal, a third of a lease away.
            if self.explains(at.saturating_sub(3_000_000_000), *at) {
                excused += 1;
            } else {
                violations.push(format!("a trusted holder was {what}"));
            }
        }
        (violations, excused)
    }

    /// Whether data was lost between the two grants. Told by their tokens, and not by when the holds were seen: a
    /// client that has lost its hold with the data passes it on among its tasks until its next renewal.
    fn separates(&self, pair: &Pair) -> bool {
        let between = |loss: &Loss| pair.0.token <= loss.last_token && pair.1.token >= loss.first_token;
        self.losses.iter().any(between)
    }

    /// Whether the rules let others pass this one while it waited.
    fn troubled(&self, hold: &Hold) -> bool {
        let mine = |trouble: &&Trouble| trouble.worker.is_none_or(|worker| worker == hold.worker);
        let meets =
            |trouble: &Trouble| trouble.began <= hold.granted && trouble.ended + AFTERMATH >= hold.queued;
        self.troubles.iter().filter(mine).any(meets)
    }

    fn explains(&self, from: u64, until: u64) -> bool {
        self.losses.iter().any(|loss| loss.began <= until && loss.ended >= from)
    }
}

/// For so long after a trouble a client may still be without its connections, or the server may count on old ones: a
/// second between two attempts to connect, the client's deadline, a claim and a poll.
const AFTERMATH: u64 = 2_500_000_000;

/// Holds that were in the queue when one with a smaller token was asked for, each with that one. `holds` is sorted by
/// token.
fn inversions(holds: &[Hold]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let Some(mut latest) = holds.first().copied() else { return pairs };
    for &hold in holds {
        if hold.queued > 0 && latest.asked > hold.queued && latest.token < hold.token {
            pairs.push((latest, hold));
        }
        if hold.asked > latest.asked {
            latest = hold;
        }
    }
    pairs
}

/// Holds that overlap another one, where not both read. `holds` is sorted by token.
fn overlaps(holds: &[Hold]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    // The longest of the writes so far, and of the reads.
    let mut longest: [Option<Hold>; 2] = [None, None];
    for &hold in holds {
        for before in longest.into_iter().flatten() {
            if before.end > hold.granted && before.token != hold.token && !(before.reads && hold.reads) {
                pairs.push((before, hold));
            }
        }
        let same = &mut longest[usize::from(hold.reads)];
        if same.is_none_or(|same| hold.end > same.end) {
            *same = Some(hold);
        }
    }
    pairs
}

/// Holds that were asked for when one with a larger token had been granted. `holds` is sorted by token.
fn misordered(holds: &[Hold]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    // The first that was granted of all so far, and of those with a larger token: of one version there are many reads.
    let (mut first, mut larger): (Option<Hold>, Option<Hold>) = (None, None);
    let mut token = None;
    for &hold in holds.iter().rev() {
        if token.replace(hold.token) != Some(hold.token) {
            larger = first;
        }
        if let Some(larger) = larger.filter(|larger| larger.granted < hold.asked) {
            pairs.push((hold, larger));
        }
        if first.is_none_or(|first| hold.granted < first.granted) {
            first = Some(hold);
        }
    }
    pairs
}

fn in_order(holds: &BTreeMap<String, Hold>) -> Vec<Hold> {
    let mut holds: Vec<Hold> = holds.values().copied().collect();
    holds.sort_by_key(|hold| hold.token);
    holds
}

fn both_read(pair: &[Hold]) -> bool {
    pair.iter().all(|hold| hold.reads)
}

/// A history of these grants: token, asked, granted, end.
#[cfg(test)]
fn history(grants: &[[u64; 4]]) -> History {
    let mut history = History::default();
    for (number, [token, asked, granted, end]) in grants.iter().enumerate() {
        history.take(0, &format!("grant 0.{number} 1 {token} {asked} {granted} {granted} 0"));
        history.take(0, &format!("end 0.{number} {end}"));
    }
    history
}

#[test]
fn the_judge_finds_what_it_is_there_for() {
    let good = [[10, 0, 1, 5], [11, 2, 5, 7], [30, 3, 8, 9]];
    assert_eq!(history(&good).judge(), (Vec::new(), 0));
    for (bad, rule) in [
        ([[10, 0, 1, 5], [11, 2, 4, 7], [30, 3, 8, 9]], "overlap"),
        ([[10, 0, 1, 9], [11, 2, 3, 4], [30, 3, 10, 11]], "overlap"),
        ([[10, 0, 1, 5], [11, 6, 7, 8], [12, 2, 5, 6]], "order"),
        ([[10, 0, 1, 5], [10, 2, 5, 7], [30, 3, 8, 9]], "twice"),
    ] {
        let (violations, _) = history(&bad).judge();
        assert!(violations.iter().any(|violation| violation.contains(rule)), "{rule}: {violations:?}");
    }
    // A write and reads: of one version, at the same time, and later.
    let mixed = |lines: &[&str]| {
        let mut history = History::default();
        lines.iter().for_each(|line| history.take(7, line));
        history
    };
    let shared = mixed(&[
        "grant 0 5 10 0 1 3 0",
        "read 1 5 12 1 4 9 0",
        "read 2 5 12 5 6 8 0",
        "grant 3 5 15 2 9 11 0",
    ]);
    assert_eq!((shared.judge(), shared.reads_beside_writes()), ((Vec::new(), 0), 2));
    for (lines, rule) in [
        // A read within a write, a write within a read, and a read within a later write.
        (["grant 0 5 10 0 1 5 0", "read 1 5 12 1 4 9 0", "read 2 5 12 5 6 8 0"], "overlap"),
        (["read 0 5 12 1 4 9 0", "read 1 5 12 5 6 7 0", "grant 2 5 15 2 8 11 0"], "overlap"),
        (["grant 0 5 15 2 4 9 0", "grant 1 5 16 8 9 10 0", "read 2 5 12 1 5 6 0"], "overlap"),
        // A read that was asked for after a later write, and one of an older version than a read before.
        (["grant 0 5 10 0 1 2 0", "grant 1 5 15 2 4 5 0", "read 2 5 12 6 7 8 0"], "order"),
        (["read 0 5 14 0 1 2 0", "read 1 5 12 3 4 5 0", "read 2 5 12 3 4 5 0"], "order"),
        (["grant 0 5 12 0 1 2 0", "read 1 5 12 3 4 5 0", "read 2 5 12 3 4 5 0"], "twice"),
    ] {
        let (violations, _) = mixed(&lines).judge();
        assert!(violations.iter().any(|violation| violation.contains(rule)), "{rule}: {violations:?}");
    }
    let mut lossy = history(&[[10, 0, 1, 5], [11, 2, 4, 7]]);
    lossy.losses.push(Loss { began: 3, ended: 3, first_token: 11, last_token: 11 });
    assert_eq!(lossy.judge(), (Vec::new(), 1));
    // A loss before both grants, or after them, is no excuse.
    for token in [9, 12] {
        lossy.losses[0] = Loss { began: 3, ended: 3, first_token: token, last_token: token };
        assert_eq!(lossy.judge().0.len(), 1, "{token}");
    }
    let mut refused = history(&good);
    refused.take(0, "refused 0.1 4000000000 11");
    assert_eq!(refused.judge().0.len(), 1);
    refused.take(0, "odd something");
    assert_eq!(refused.judge().0.len(), 2);
    // In the queue since 3, and passed by one that was asked for at 4.
    let lines = ["grant 0.0 3 10 4 5 6 0", "grant 0.1 3 11 1 7 8 3", "grant 0.2 3 12 2 9 9 4"];
    let mut passed = mixed(&lines);
    let (violations, _) = passed.judge();
    assert!(violations.len() == 1 && violations[0].contains("turn"), "{violations:?}");
    assert_eq!(passed.waits_in_order(), 2);
    let later = AFTERMATH + 1_000;
    for (worker, began, excuses) in
        [(Some(7), 5, true), (None, 7, true), (Some(8), 5, false), (None, 8, false)]
    {
        passed.troubles = vec![Trouble { worker, began, ended: later }];
        assert_eq!(passed.judge().0.is_empty(), excuses, "{worker:?} {began}");
    }
}
