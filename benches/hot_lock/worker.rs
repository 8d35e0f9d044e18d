//! One process of the bench: tasks that take the lock, work, and let it go, and a record of each section.

use std::time::Duration;

use crate::designs::Design;
use crate::figures::Section;
use crate::support::monotonic;

/// `<design> <url> <tasks> <section us> <begin> <length> <file>`
pub fn run(args: &[String]) {
    let number = |at: usize| args[at].parse::<u64>().expect("a number");
    let (tasks, section) = (number(2), Duration::from_micros(number(3)));
    let (begin, end) = (number(4), number(4) + number(5));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let sections = runtime.expect("a runtime").block_on(async {
        let design = Design::connect(&args[0], &args[1], &args[4]).await;
        tokio::time::sleep(Duration::from_nanos(begin.saturating_sub(monotonic()))).await;
        let running: Vec<_> =
            (0..tasks).map(|task| tokio::spawn(work(design.clone(), task, section, end))).collect();
        let mut sections = Vec::new();
        for task in running {
            sections.extend(task.await.expect("no task panics"));
        }
        sections
    });
    let bytes: Vec<u8> = sections.iter().flat_map(Section::bytes).collect();
    std::fs::write(&args[6], bytes).expect("the record is written");
}

async fn work(design: Design, task: u64, section: Duration, end: u64) -> Vec<Section> {
    let mut sections = Vec::new();
    loop {
        let asked = monotonic();
        if asked >= end {
            return sections;
        }
        let Some((held, placed)) = design.acquire(Duration::from_nanos(end - asked)).await else {
            return sections;
        };
        let entered = monotonic();
        if !section.is_zero() {
            // Work, not sleep: a timer would add up to a millisecond of its own.
            while monotonic() < entered + u64::try_from(section.as_nanos()).expect("a short section") {
                tokio::task::yield_now().await;
            }
        }
        let left = monotonic();
        sections.push(Section { process: 0, task, asked, placed, token: held.token(), entered, left });
        design.release(held).await;
    }
}
