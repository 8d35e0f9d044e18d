//! What a lock costs that nobody else wants: `lock` and `unlock` on distinct locks, against two bare script calls
//! through the same kind of connection, and against the two calls of a naive lock.
#![allow(clippy::disallowed_methods, missing_docs, reason = "a bench measures real time")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwright::Client;
use lockwright::internals::backend::{Backend, Value};
use lockwright::internals::ticket::{ClientId, Tickets};
use support::{bare, delay, floor_call, has_flag, median, naive_calls, quantile};

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(600);
/// The nominal round trip in milliseconds (0: loopback), and how many tasks.
const CELLS: [(u64, usize); 6] = [(0, 1), (0, 16), (0, 64), (0, 256), (1, 1), (1, 64)];

/// One round: how many pairs a second, and each pair's time.
struct Round {
    pairs_per_s: f64,
    p50_us: f64,
    p99_us: f64,
}

fn main() {
    let workers = std::env::var("WORKERS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    runtime.expect("a runtime").block_on(run());
}

async fn run() {
    let server = support::server::Server::start();
    if !has_flag("--json") {
        println!(
            "rtt ms  tasks  pairs/s  p50 us  p99 us  floor pairs/s  floor p50 us  p50/floor  pairs/floor  \
             naive/floor  p50/naive"
        );
    }
    for (rtt_ms, tasks) in CELLS {
        let url = match rtt_ms {
            0 => server.url(),
            _ => delay::start(server.port(), Duration::from_micros(rtt_ms * 500)),
        };
        let client = Client::connect(&url).await.expect("the server is there");
        let (floor, _events) = bare(&url).await;
        let (mut ours, mut bare, mut naive) = (Vec::new(), Vec::new(), Vec::new());
        round(tasks, |task| lock_pairs(client.clone(), task)).await;
        for _ in 0..ROUNDS {
            bare.push(round(tasks, |task| floor_pairs(floor.clone(), task)).await);
            ours.push(round(tasks, |task| lock_pairs(client.clone(), task)).await);
            naive.push(round(tasks, |task| naive_pairs(floor.clone(), task)).await);
        }
        report((rtt_ms, tasks), &ours, &bare, &naive);
        client.close().await;
        floor.close().await;
    }
}

async fn round<F>(tasks: usize, pairs: impl Fn(usize) -> F) -> Round
where
    F: Future<Output = Vec<u64>> + Send + 'static,
{
    let started = Instant::now();
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(pairs(task))).collect();
    let mut times = Vec::new();
    for task in running {
        times.extend(task.await.expect("no task panics"));
    }
    let pairs_per_s = times.len() as f64 / started.elapsed().as_secs_f64();
    let (p50, p99) = (quantile(&mut times, 0.5) as f64, quantile(&mut times, 0.99) as f64);
    Round { pairs_per_s, p50_us: p50 / 1e3, p99_us: p99 / 1e3 }
}

async fn lock_pairs(client: Client, task: usize) -> Vec<u64> {
    let lock = client.lock(&format!("bench:{task}"));
    let (end, mut times) = (Instant::now() + ROUND, Vec::new());
    while Instant::now() < end {
        let started = Instant::now();
        lock.lock().await.expect("it is free").unlock().await.expect("it is held");
        times.push(nanos(started));
    }
    times
}

async fn floor_pairs(floor: Arc<dyn Backend>, task: usize) -> Vec<u64> {
    let key = format!("bench:{task}");
    let (end, mut times) = (Instant::now() + ROUND, Vec::new());
    while Instant::now() < end {
        let started = Instant::now();
        for _ in 0..2 {
            floor.call(floor_call(&key), Duration::from_secs(1)).await.outcome.expect("the server answers");
        }
        times.push(nanos(started));
    }
    times
}

async fn naive_pairs(server: Arc<dyn Backend>, task: usize) -> Vec<u64> {
    let (key, tickets) = (format!("naive:{task}"), Tickets::new(ClientId::random()));
    let (end, mut times) = (Instant::now() + ROUND, Vec::new());
    while Instant::now() < end {
        let started = Instant::now();
        for call in naive_calls(&key, &tickets.next().to_string()) {
            let answer = server.call(call, Duration::from_secs(1)).await.outcome;
            assert!(matches!(answer, Ok(Value::Int(1..))), "{answer:?}");
        }
        times.push(nanos(started));
    }
    times
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn report((rtt_ms, tasks): (u64, usize), ours: &[Round], bare: &[Round], naive: &[Round]) {
    let of = |rounds: &[Round], what: fn(&Round) -> f64| median(rounds.iter().map(what).collect());
    // Ratios are taken round by round, against the floor beside it: the machine's speed drifts.
    let ratio_of = |ours: &[Round], bare: &[Round], what: fn(&Round) -> f64| {
        median(ours.iter().zip(bare).map(|(ours, bare)| what(ours) / what(bare)).collect())
    };
    let ratio = |what| ratio_of(ours, bare, what);
    let (naive_x, p50_x_naive) = (ratio_of(naive, bare, |r| r.p50_us), ratio_of(ours, naive, |r| r.p50_us));
    let (pairs, p50, p99) = (of(ours, |r| r.pairs_per_s), of(ours, |r| r.p50_us), of(ours, |r| r.p99_us));
    let (floor_pairs, floor_p50) = (of(bare, |r| r.pairs_per_s), of(bare, |r| r.p50_us));
    let (p50_x, pairs_x) = (ratio(|r| r.p50_us), ratio(|r| r.pairs_per_s));
    if has_flag("--json") {
        println!(
            "{{\"bench\":\"uncontended\",\"rtt_ms\":{rtt_ms},\"tasks\":{tasks},\"pairs_per_s\":{pairs:.0},\
             \"p50_us\":{p50:.1},\"p99_us\":{p99:.1},\"floor_pairs_per_s\":{floor_pairs:.0},\
             \"floor_p50_us\":{floor_p50:.1},\
             \"p50_x_floor\":{p50_x:.3},\"pairs_x_floor\":{pairs_x:.3},\"naive_p50_x_floor\":{naive_x:.3},\
             \"p50_x_naive\":{p50_x_naive:.3}}}"
        );
    } else {
        println!(
            "{rtt_ms:>6}  {tasks:>5}  {pairs:>7.0}  {p50:>6.1}  {p99:>6.1}  {floor_pairs:>13.0}  {floor_p50:>12.1}  \
             {p50_x:>9.2}  {pairs_x:>11.2}  {naive_x:>11.2}  {p50_x_naive:>9.2}"
        );
    }
}
