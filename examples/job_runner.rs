//! Job runners take jobs in the order in which they asked. One is killed in the middle of a job; the rest go on.
//!
//! `cargo run --example job_runner [-- --redis URL] [--runners N] [--jobs N]`
//!
//! A runner waits in the queue of a fair lock for its turn, and tells how many are before it, at most. A job is done
//! under the lock, and noted as done by the token of the turn: a killed runner's job is not done, and the next runner
//! does it again, within a lease, or a claim where the runner was killed just after the lock was handed to it. Runners
//! are tasks on one engine; with `--redis` they are processes.
#![allow(clippy::disallowed_methods, reason = "an example waits as its users do")]

mod support;

use std::time::Duration;

use lockwright::{Lease, Step};
use support::*;

const WORK: Duration = Duration::from_millis(100);
/// For so long at most nobody does what a killed runner was doing.
const LEASE: Duration = Duration::from_millis(1_000);
/// New positions are told each half of it.
const CLAIM: Duration = Duration::from_millis(300);
/// The runner that is killed in its second job: the second one.
const KILLED: &str = "1";

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let arguments = support::arguments();
    support::exit(match &arguments[..] {
        [first, url, store, jobs, runner] if first == "--runner" => {
            let job = jobs.parse().expect("a number");
            run(Place::Server(url.clone()), store.clone(), job, runner == KILLED, Report::Process).await
        }
        arguments => watch(arguments).await,
    })
}

/// One runner: waits for a turn, does a job, and waits again, until there is no job left.
async fn run(place: Place, store: String, jobs: u64, dies: bool, report: Report) -> Result<(), Failure> {
    let client = place.client_with(|builder| builder.claim(CLAIM).lease(Lease::renewed(LEASE))).await?;
    let (turns, mut done) = (client.fair_lock(&format!("jobs {store}")), Store::open(store.as_ref())?);
    report.ready()?;
    for turn in 1.. {
        let mut place = turns.queue().await?;
        report.line(&format!("{} before", place.position()));
        let guard = loop {
            match place.next().await? {
                Step::Moved(position) => report.line(&format!("{position} before")),
                Step::Granted(guard) => break guard,
            }
        };
        let job = done.read()? + 1;
        if job > jobs {
            drop(guard.unlock().await);
            break;
        }
        report.line(&format!("job {job}"));
        tokio::time::sleep(WORK).await;
        if dies && turn == 2 {
            report.line(KILL_ME);
            std::future::pending::<()>().await;
        }
        // On a machine that is busy for too long a turn can be lost. Then the job may be somebody else's by now.
        let written = guard.is_held() && done.write_fenced(job, guard.token())?;
        report.line(&if written { format!("{job} done") } else { "lost".to_owned() });
        drop(guard.unlock().await);
    }
    report.line("");
    Ok(())
}

async fn watch(arguments: &[String]) -> Result<(), Failure> {
    let options = options(arguments, &["--redis URL", "--runners N", "--jobs N"])?;
    let number = |name, default| options.get(name).map_or(Ok(default), |text| text.parse());
    let (runners, jobs) = (number("--runners", 4)?, number("--jobs", 12)?);
    let (place, folder, start) = (Place::of(&options), tempfile::tempdir()?, shared_nanos());
    let store = Store::create(&folder.path().join("done"), 0)?;
    println!("{runners} {} do {jobs} jobs; one is killed in its second job\n", place.workers());
    let head: String = (1..=runners).map(|runner| format!("{:>12}", format!("runner {runner}"))).collect();
    println!("{:>6}{head}", "ms");
    let words = ["--runner", place.url().unwrap_or_default(), &store, &jobs.to_string()].map(str::to_owned);
    let task = |runner: usize, report| {
        as_process(run(place.clone(), store.clone(), jobs, runner.to_string() == KILLED, report))
    };
    let (mut shown, mut turns) = (vec![String::new(); runners as usize], 0);
    run_workers(&place, runners as usize, &words, task, |runner, line| {
        line.clone_into(&mut shown[runner]);
        turns += usize::from(line.starts_with("job"));
        // A row for each turn shows the positions, too, which change between two turns.
        if line.starts_with("job") || line == KILLED_WORKER {
            let row: String = shown.iter().map(|cell| format!("{cell:>12}")).collect();
            println!("{:>6}{row}", (shared_nanos() - start) / 1_000_000);
        }
        Ok(())
    })
    .await?;
    println!("\n{} jobs are done, in {turns} turns", Store::open(store.as_ref())?.read()?);
    Ok(())
}
