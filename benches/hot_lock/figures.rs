//! What the records of a run amount to.

use std::time::Duration;

use crate::{has_flag, median, quantile};

/// One critical section, in nanoseconds of the clock that all processes share.
#[derive(Clone, Copy)]
pub struct Section {
    pub process: usize,
    pub task: u64,
    pub asked: u64,
    /// When it was told its place in the queue; zero where it did not ask for it.
    pub placed: u64,
    pub token: u64,
    pub entered: u64,
    pub left: u64,
}

impl Section {
    pub const BYTES: usize = 48;

    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let values = [self.task, self.asked, self.placed, self.token, self.entered, self.left];
        for (chunk, value) in bytes.chunks_exact_mut(8).zip(values) {
            chunk.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    pub fn read(process: usize, bytes: &[u8]) -> Self {
        let value =
            |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        let (task, asked, placed, token) = (value(0), value(1), value(2), value(3));
        Self { process, task, asked, placed, token, entered: value(4), left: value(5) }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub sections_per_s: f64,
    pub x_floor: f64,
    pub x_broadcast: f64,
    pub ping_p50_ms: f64,
    pub calls_per_section: f64,
    pub jain: f64,
    pub idle_tasks: f64,
    pub handover_p50_us: f64,
    pub handover_p99_us: f64,
    pub longest_wait_ms: f64,
}

pub const HEAD: &str = "design     proc tasks rtt ms section us | sections/s  x floor  x broadcast  calls/section  \
    jain   idle  hand-over p50 us  p99 us  longest wait ms  ping p50 ms";

impl Figures {
    /// Of the sections that were entered from `from` on, for `span`.
    pub fn of(mut sections: Vec<Section>, tasks: usize, from: u64, span: Duration, calls: u64) -> Self {
        let end = from + u64::try_from(span.as_nanos()).expect("a short run");
        sections.retain(|section| (from..end).contains(&section.entered));
        sections.sort_by_key(|section| section.entered);
        let mut counts = std::collections::BTreeMap::new();
        for section in &sections {
            *counts.entry((section.process, section.task)).or_insert(0_u64) += 1;
        }
        let sum: f64 = counts.values().map(|&count| count as f64).sum();
        let squares: f64 = counts.values().map(|&count| (count as f64).powi(2)).sum();
        let mut handovers: Vec<u64> = sections
            .windows(2)
            .filter(|pair| pair[0].process != pair[1].process)
            .map(|pair| pair[1].entered.saturating_sub(pair[0].left))
            .collect();
        let longest = sections.iter().map(|section| section.entered - section.asked).max().unwrap_or(0);
        Self {
            sections_per_s: sum / span.as_secs_f64(),
            calls_per_section: calls as f64 / sum,
            jain: sum * sum / (tasks as f64 * squares),
            idle_tasks: (tasks - counts.len()) as f64,
            handover_p50_us: quantile(&mut handovers, 0.5) as f64 / 1e3,
            handover_p99_us: quantile(&mut handovers, 0.99) as f64 / 1e3,
            longest_wait_ms: longest as f64 / 1e6,
            ..Self::default()
        }
    }

    /// Beside one task's bare pairs a second and its round trip.
    pub fn against(mut self, (pairs_per_s, ping_ms): (f64, f64)) -> Self {
        self.x_floor = self.sections_per_s / pairs_per_s;
        self.ping_p50_ms = ping_ms;
        self
    }

    /// The medians of the rounds, and of the ratios to the same rounds of `broadcast`.
    pub fn median(rounds: &[Self], broadcast: &[Self]) -> Self {
        let of = |what: fn(&Self) -> f64| median(rounds.iter().map(what).collect());
        let ratios =
            rounds.iter().zip(broadcast).map(|(ours, theirs)| ours.sections_per_s / theirs.sections_per_s);
        Self {
            sections_per_s: of(|f| f.sections_per_s),
            x_floor: of(|f| f.x_floor),
            x_broadcast: median(ratios.collect()),
            ping_p50_ms: of(|f| f.ping_p50_ms),
            calls_per_section: of(|f| f.calls_per_section),
            jain: of(|f| f.jain),
            idle_tasks: of(|f| f.idle_tasks),
            handover_p50_us: of(|f| f.handover_p50_us),
            handover_p99_us: of(|f| f.handover_p99_us),
            longest_wait_ms: of(|f| f.longest_wait_ms),
        }
    }

    pub fn line(&self, design: &str, processes: usize, tasks: usize, rtt_ms: u64, section_us: u64) -> String {
        if has_flag("--json") {
            format!(
                "{{\"bench\":\"hot_lock\",\"design\":\"{design}\",\"processes\":{processes},\"tasks\":{tasks},\
                 \"rtt_ms\":{rtt_ms},\"ping_p50_ms\":{:.3},\"section_us\":{section_us},\"sections_per_s\":{:.0},\
                 \"x_floor\":{:.2},\"x_broadcast\":{:.2},\"evalsha_per_section\":{:.3},\"jain\":{:.3},\
                 \"idle_tasks\":{:.0},\"handover_p50_us\":{:.0},\"handover_p99_us\":{:.0},\"longest_wait_ms\":{:.0}}}",
                self.ping_p50_ms,
                self.sections_per_s,
                self.x_floor,
                self.x_broadcast,
                self.calls_per_section,
                self.jain,
                self.idle_tasks,
                self.handover_p50_us,
                self.handover_p99_us,
                self.longest_wait_ms
            )
        } else {
            format!(
                "{design:<10} {processes:>4} {tasks:>5} {rtt_ms:>6} {section_us:>10} | {:>10.0} {:>8.2} {:>12.2} \
                 {:>14.2} {:>6.3} {:>6.0} {:>17.0} {:>7.0} {:>16.0} {:>12.3}",
                self.sections_per_s,
                self.x_floor,
                self.x_broadcast,
                self.calls_per_section,
                self.jain,
                self.idle_tasks,
                self.handover_p50_us,
                self.handover_p99_us,
                self.longest_wait_ms,
                self.ping_p50_ms
            )
        }
    }
}

/// How strictly a lock was given in the order of asking.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order {
    /// From one process to another.
    pub hand_overs: u64,
    /// Sections that were granted before one whose place had been told when they asked.
    pub inversions: u64,
    /// Sections that began before the one with the next smaller token was left.
    pub overlaps: u64,
}

impl Order {
    pub fn of(mut sections: Vec<Section>) -> Self {
        sections.sort_by_key(|section| section.token);
        let pairs = || sections.windows(2);
        let hand_overs = pairs().filter(|pair| pair[0].process != pair[1].process).count() as u64;
        let overlaps = pairs().filter(|pair| pair[1].entered < pair[0].left).count() as u64;
        let mut placed: Vec<(u64, u64)> =
            sections.iter().map(|section| (section.placed, section.token)).collect();
        placed.sort_unstable();
        sections.sort_by_key(|section| section.asked);
        let (mut placed, mut last, mut inversions) = (placed.into_iter().peekable(), 0, 0);
        for section in &sections {
            while let Some((_, token)) = placed.next_if(|&(when, _)| when < section.asked) {
                last = last.max(token);
            }
            inversions += u64::from(section.token < last);
        }
        Self { hand_overs, inversions, overlaps }
    }

    pub fn add(&mut self, other: Self) {
        self.hand_overs += other.hand_overs;
        self.inversions += other.inversions;
        self.overlaps += other.overlaps;
    }

    pub fn line(&self, processes: usize, tasks: usize) -> String {
        let Self { hand_overs, inversions, overlaps } = self;
        match has_flag("--json") {
            true => format!(
                "{{\"bench\":\"hot_lock\",\"design\":\"fair\",\"figure\":\"order\",\"processes\":{processes},\
                 \"tasks\":{tasks},\"hand_overs\":{hand_overs},\"inversions\":{inversions},\
                 \"overlaps\":{overlaps}}}"
            ),
            false => format!(
                "fair, {processes} processes x {tasks} tasks: {hand_overs} hand-overs between processes, \
                 {inversions} inversions, {overlaps} overlaps"
            ),
        }
    }
}
