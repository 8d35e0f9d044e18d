//! Many readers of one lock, and few writers: reads that share one hold at the server, reads that keep it, and, for
//! comparison, a hold for each reader.
#![allow(clippy::disallowed_methods, missing_docs, reason = "a bench measures real time")]

mod support;
#[path = "read_write/worker.rs"]
mod worker;

use std::process::{Command, Stdio};
use std::time::Duration;

use support::server::Server;
use support::{has_flag, median, monotonic, quantile};
use worker::Record;

/// Each run lasts this long; its first second is not counted.
const RUN: Duration = Duration::from_secs(5);
const ROUNDS: usize = 3;
const MODES: [&str; 3] = ["shared", "cached", "per_reader"];
/// From the beginning of one write to that of the next.
pub const WRITE_EVERY: Duration = Duration::from_millis(10);

#[derive(Clone, Copy)]
struct Cell {
    processes: usize,
    /// In each process.
    readers: usize,
    /// In all.
    writers: usize,
}

const CELLS: [Cell; 3] = [
    Cell { processes: 1, readers: 64, writers: 0 },
    Cell { processes: 1, readers: 64, writers: 1 },
    Cell { processes: 4, readers: 64, writers: 1 },
];

#[derive(Clone, Default)]
struct Figures {
    reads_per_s: f64,
    writes_per_s: f64,
    x_per_reader: f64,
    evalsha_per_read: f64,
    write_wait_p50_us: f64,
    write_wait_p99_us: f64,
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--worker") {
        return worker::run(&args[at + 1..]);
    }
    let rounds = if has_flag("--once") { 1 } else { ROUNDS };
    if !has_flag("--json") {
        println!(
            "mode       proc readers writers |      reads/s  x per_reader  calls/read  writes/s  write wait p50 us     p99 us"
        );
    }
    let server = Server::start();
    for cell in CELLS {
        let mut all: [Vec<Figures>; MODES.len()] = Default::default();
        for _ in 0..rounds {
            let mut round = MODES.map(|mode| run(&server, mode, cell));
            let per_reader = round[MODES.len() - 1].reads_per_s;
            for (figures, all) in round.iter_mut().zip(&mut all) {
                figures.x_per_reader = figures.reads_per_s / per_reader;
                all.push(figures.clone());
            }
        }
        for (mode, rounds) in MODES.iter().zip(&all) {
            println!("{}", line(mode, cell, &Figures::median(rounds)));
        }
    }
}

fn run(server: &Server, mode: &str, cell: Cell) -> Figures {
    let folder = tempfile::tempdir().expect("a folder for the records");
    let program = std::env::current_exe().expect("this program");
    // Time enough for all processes to connect.
    let begin = monotonic() + 500_000_000;
    let children: Vec<_> = (0..cell.processes)
        .map(|process| {
            let writers = if process == 0 { cell.writers } else { 0 };
            Command::new(&program)
                .args(["--worker", mode, &server.url(), &cell.readers.to_string(), &writers.to_string()])
                .args([&begin.to_string(), &RUN.as_nanos().to_string()])
                .arg(folder.path().join(process.to_string()))
                .stdin(Stdio::null())
                .spawn()
                .expect("this program starts")
        })
        .collect();
    let counted = RUN - Duration::from_secs(1);
    std::thread::sleep(Duration::from_nanos(begin + 1_000_000_000 - monotonic()));
    let before = server.script_calls();
    std::thread::sleep(counted);
    let calls = server.script_calls() - before;
    for mut child in children {
        assert!(child.wait().expect("the worker ends").success(), "a worker failed");
    }
    let (mut reads, mut waits) = (0, Vec::new());
    for process in 0..cell.processes {
        let bytes = std::fs::read(folder.path().join(process.to_string())).expect("the worker's record");
        let record = Record::read(&bytes);
        reads += record.reads;
        waits.extend(record.waits);
    }
    Figures {
        reads_per_s: reads as f64 / counted.as_secs_f64(),
        writes_per_s: waits.len() as f64 / counted.as_secs_f64(),
        x_per_reader: 0.0,
        evalsha_per_read: calls as f64 / reads as f64,
        write_wait_p50_us: quantile(&mut waits, 0.5) as f64 / 1e3,
        write_wait_p99_us: quantile(&mut waits, 0.99) as f64 / 1e3,
    }
}

impl Figures {
    fn median(rounds: &[Self]) -> Self {
        let of = |what: fn(&Self) -> f64| median(rounds.iter().map(what).collect());
        Self {
            reads_per_s: of(|f| f.reads_per_s),
            writes_per_s: of(|f| f.writes_per_s),
            x_per_reader: of(|f| f.x_per_reader),
            evalsha_per_read: of(|f| f.evalsha_per_read),
            write_wait_p50_us: of(|f| f.write_wait_p50_us),
            write_wait_p99_us: of(|f| f.write_wait_p99_us),
        }
    }
}

fn line(mode: &str, cell: Cell, figures: &Figures) -> String {
    let Cell { processes, readers, writers } = cell;
    let Figures { reads_per_s, writes_per_s, x_per_reader, evalsha_per_read, .. } = figures;
    let (p50, p99) = (figures.write_wait_p50_us, figures.write_wait_p99_us);
    if has_flag("--json") {
        format!(
            "{{\"bench\":\"read_write\",\"mode\":\"{mode}\",\"processes\":{processes},\"readers\":{readers},\
             \"writers\":{writers},\"reads_per_s\":{reads_per_s:.0},\"x_per_reader\":{x_per_reader:.2},\
             \"evalsha_per_read\":{evalsha_per_read:.6},\"writes_per_s\":{writes_per_s:.1},\
             \"write_wait_p50_us\":{p50:.0},\"write_wait_p99_us\":{p99:.0}}}"
        )
    } else {
        format!(
            "{mode:<10} {processes:>4} {readers:>7} {writers:>7} | {reads_per_s:>12.0} {x_per_reader:>13.2} \
             {evalsha_per_read:>11.6} {writes_per_s:>9.1} {p50:>18.0} {p99:>10.0}"
        )
    }
}
