//! One process of the bench: readers that read as often as they can, and writers that write now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use lockwright::{Client, Owner, RwLock};

use crate::WRITE_EVERY;
use crate::support::monotonic;

/// What a worker has seen while it counted.
#[derive(Default)]
pub struct Record {
    pub reads: u64,
    /// For how long each write waited, in nanoseconds.
    pub waits: Vec<u64>,
}

impl Record {
    fn bytes(&self) -> Vec<u8> {
        std::iter::once(&self.reads).chain(&self.waits).flat_map(|number| number.to_le_bytes()).collect()
    }

    pub fn read(bytes: &[u8]) -> Self {
        let mut numbers =
            bytes.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        Self { reads: numbers.next().expect("a count"), waits: numbers.collect() }
    }
}

const COUNTS: u8 = 1;
const OVER: u8 = 2;

/// `<mode> <url> <readers> <writers> <begin> <length> <file>`
pub fn run(args: &[String]) {
    let number = |at: usize| args[at].parse::<u64>().expect("a number");
    let (readers, writers, begin, end) = (number(2), number(3), number(4), number(4) + number(5));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let record = runtime.expect("a runtime").block_on(async {
        let client = Client::connect(&args[1]).await.expect("the server is there");
        let lock = client.rw_lock("read_write");
        let lock = if args[0] == "cached" { lock.cached() } else { lock };
        let phase = Arc::new(AtomicU8::new(0));
        let until = async |moment: u64| {
            tokio::time::sleep(Duration::from_nanos(moment.saturating_sub(monotonic()))).await;
        };
        until(begin).await;
        let reading: Vec<_> = (0..readers)
            .map(|_| {
                // With an owner of its own each reader has a hold of its own.
                let lock = if args[0] == "per_reader" {
                    lock.clone().with_owner(&Owner::new())
                } else {
                    lock.clone()
                };
                tokio::spawn(read(lock, phase.clone()))
            })
            .collect();
        let writing: Vec<_> =
            (0..writers).map(|_| tokio::spawn(write(client.rw_lock("read_write"), phase.clone()))).collect();
        until(begin + 1_000_000_000).await;
        phase.store(COUNTS, Ordering::Relaxed);
        until(end).await;
        phase.store(OVER, Ordering::Relaxed);
        let mut record = Record::default();
        for task in reading {
            record.reads += task.await.expect("no reader panics");
        }
        for task in writing {
            record.waits.extend(task.await.expect("no writer panics"));
        }
        client.close().await;
        record
    });
    std::fs::write(&args[6], record.bytes()).expect("the record is written");
}

async fn read(lock: RwLock, phase: Arc<AtomicU8>) -> u64 {
    let mut reads = 0;
    loop {
        match phase.load(Ordering::Relaxed) {
            OVER => return reads,
            phase => reads += u64::from(phase == COUNTS),
        }
        let reader = lock.read().await.expect("it is granted");
        // As long as the others' turns: readers overlap.
        tokio::task::yield_now().await;
        drop(reader);
    }
}

async fn write(lock: RwLock, phase: Arc<AtomicU8>) -> Vec<u64> {
    let mut waits = Vec::new();
    let mut due = monotonic();
    loop {
        due = (due + u64::try_from(WRITE_EVERY.as_nanos()).expect("a short time")).max(monotonic());
        tokio::time::sleep(Duration::from_nanos(due.saturating_sub(monotonic()))).await;
        let asked = monotonic();
        let writer = lock.write().await.expect("it is granted");
        let waited = monotonic() - asked;
        writer.unlock().await.expect("it is held");
        match phase.load(Ordering::Relaxed) {
            OVER => return waits,
            COUNTS => waits.push(waited),
            _ => {}
        }
    }
}
