//! What workers report of a sale, and the figures in it.

use super::{Failure, percentile};

#[derive(Default)]
pub struct Sales {
    /// When each buyer came in, when it was done, and who served it.
    done: Vec<(u64, u64, usize)>,
    /// How many writes the store refused.
    pub refused: u64,
}

impl Sales {
    /// Takes a worker's line: two times, or the word `refused`.
    pub fn take(&mut self, worker: usize, line: &str) -> Result<(), Failure> {
        match line.split_once(' ') {
            Some((entered, done)) => self.done.push((entered.parse()?, done.parse()?, worker)),
            None => self.refused += 1,
        }
        Ok(())
    }

    pub fn sold(&self) -> u64 {
        self.done.len() as u64
    }

    pub fn oversold(&self, stock: u64) -> u64 {
        self.sold().saturating_sub(stock)
    }

    /// The figures of two sales in one line.
    pub fn json(without: &Self, with: &Self, stock: u64) -> String {
        let common =
            |sales: &Self| format!(r#""sold":{},"oversold":{}"#, sales.sold(), sales.oversold(stock));
        let (without, rate) = (common(without), with.per_second());
        let (with, p50, p99) = (common(with), with.handover(50), with.handover(99));
        let speed = format!(r#""sections_per_s":{rate:.0},"handover_p50_us":{p50},"handover_p99_us":{p99}"#);
        format!(r#"{{"without_lock":{{{without}}},"with_lock":{{{with},{speed}}}}}"#)
    }

    pub fn per_second(&self) -> f64 {
        let first = self.done.iter().map(|sale| sale.0).min().unwrap_or(0);
        let last = self.done.iter().map(|sale| sale.1).max().unwrap_or(0);
        self.done.len() as f64 * 1e9 / (last - first).max(1) as f64
    }

    /// Microseconds from the end of one sale to the beginning of the next by another worker.
    pub fn handover(&self, percent: usize) -> u64 {
        let mut done = self.done.clone();
        done.sort_unstable();
        let others = done.windows(2).filter(|pair| pair[0].2 != pair[1].2);
        let mut spans: Vec<u64> = others.map(|pair| pair[1].0.saturating_sub(pair[0].1) / 1_000).collect();
        spans.sort_unstable();
        percentile(&spans, percent)
    }
}
