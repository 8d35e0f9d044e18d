//! Workers that report by lines: tasks with clients of their own on one engine, or processes with a server.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::{Failure, Place};

/// A line of a worker; `None` when it has no more to say.
type Line = (usize, Option<String>);

/// A line by which a worker asks to be killed in the middle of what it does, and what is reported of it then.
pub const KILL_ME: &str = "kill me";
pub const KILLED_WORKER: &str = "killed";

/// How a worker reports.
pub enum Report {
    Task(usize, UnboundedSender<Line>),
    Process,
}

impl Report {
    /// Says that this worker is ready, and waits until all are.
    pub fn ready(&self) -> Result<(), Failure> {
        let Self::Process = self else { return Ok(()) };
        println!("ready");
        match std::io::stdin().read_line(&mut String::new())? {
            0 => Err("the process that started this one is gone".into()),
            _ => Ok(()),
        }
    }

    pub fn line(&self, text: &str) {
        match self {
            Self::Task(worker, lines) => drop(lines.send((*worker, Some(text.to_owned())))),
            Self::Process => println!("{text}"),
        }
    }
}

/// Runs `count` workers together, and gives each of their lines to `take`. Tasks are what `task` makes; processes are
/// this program with `arguments` and a number, which then does the same. Processes begin together, when all are
/// [ready](Report::ready).
pub async fn run_workers<F>(
    place: &Place,
    count: usize,
    arguments: &[String],
    task: impl Fn(usize, Report) -> F,
    mut take: impl FnMut(usize, &str) -> Result<(), Failure>,
) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let (sender, mut lines) = unbounded_channel::<Line>();
    let (mut tasks, mut handles, mut processes) = (JoinSet::new(), Vec::new(), Vec::new());
    for number in 0..count {
        match place {
            Place::Engine(_) => handles.push(tasks.spawn(task(number, Report::Task(number, sender.clone())))),
            Place::Server(_) => processes.push(Worker::start(number, arguments, &sender)?),
        }
    }
    drop(sender);
    let (mut ready, mut ended) = (0, 0);
    while let Some((number, line)) = lines.recv().await {
        match line.as_deref() {
            Some("ready") => {
                ready += 1;
                if ready == count {
                    processes.iter_mut().try_for_each(Worker::go)?;
                }
            }
            Some(KILL_ME) => {
                match place {
                    Place::Engine(_) => handles[number].abort(),
                    Place::Server(_) => processes[number].kill()?,
                }
                take(number, KILLED_WORKER)?;
            }
            Some(line) => take(number, line)?,
            None if ready < count => return Err("a worker ended before it was ready".into()),
            None => ended += 1,
        }
    }
    debug_assert_eq!(ended, processes.len());
    while let Some(outcome) = tasks.join_next().await {
        match outcome {
            Err(error) if error.is_cancelled() => {}
            outcome => outcome??,
        }
    }
    processes.into_iter().try_for_each(Worker::finish)
}

/// `work` on a runtime of its own, as a process has one: where it is aborted, nothing of it and of its clients happens
/// any more, and nothing is given back.
pub async fn as_process(
    work: impl Future<Output = Result<(), Failure>> + Send + 'static,
) -> Result<(), Failure> {
    struct Own(Option<Runtime>);
    impl Drop for Own {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(Runtime::shutdown_background);
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let working = runtime.spawn(work);
    let _own = Own(Some(runtime));
    working.await?
}

/// This program once more. Stopped when dropped.
struct Worker {
    child: Child,
    input: ChildStdin,
    killed: bool,
}

impl Worker {
    fn start(number: usize, arguments: &[String], reports: &UnboundedSender<Line>) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .arg(number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (output, reports) = (child.stdout.take().ok_or("its output is piped")?, reports.clone());
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok).map(Some);
            for line in lines.chain([None]) {
                let _ = reports.send((number, line));
            }
        });
        let input = child.stdin.take().ok_or("its input is piped")?;
        Ok(Self { child, input, killed: false })
    }

    fn go(&mut self) -> Result<(), Failure> {
        Ok(writeln!(self.input, "go")?)
    }

    /// `kill -9`.
    fn kill(&mut self) -> Result<(), Failure> {
        self.killed = true;
        Ok(self.child.kill()?)
    }

    /// Waits for its end, which must be a good one if it was not killed.
    fn finish(mut self) -> Result<(), Failure> {
        let status = self.child.wait()?;
        if status.success() || self.killed {
            Ok(())
        } else {
            Err(format!("a worker failed: {status}").into())
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
