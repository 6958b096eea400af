//! The process groups of running children. Each child leads one, which no terminal's interrupt reaches; when this program is
//! interrupted or dies, even by a signal that it cannot handle, they are ended.

use std::{
    collections::BTreeSet,
    io::Write as _,
    os::unix::process::CommandExt as _,
    process::{ChildStdin, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How long groups may take to end by themselves. A build tool ends its compilers meanwhile, which lead groups of their own.
const GRACE: Duration = Duration::from_secs(1);

/// How often it is looked whether they have ended.
const LOOK: Duration = Duration::from_millis(10);

/// Keeps the list of groups that this program tells it and, once nobody is left to tell it anything, ends those on it. What
/// would end this program ends it not.
const WATCH: &str = r#"trap '' HUP INT QUIT TERM
live=' '
while read -r what group; do
  case $what$live in
    +*) live="$live$group " ;;
    -*" $group "*) live="${live%% "$group" *} ${live#* "$group" }" ;;
  esac
done
[ "$live" = ' ' ] && exit
for group in $live; do kill -s TERM -- "-$group"; kill -s CONT -- "-$group"; done
sleep 1
for group in $live; do kill -s KILL -- "-$group"; done
"#;

/// A process group that is ended when this program is interrupted or dies; forgotten when this is dropped.
#[derive(Debug)]
pub struct GroupGuard(u32);

static RUNNING: Mutex<Running> = Mutex::new(Running { groups: BTreeSet::new(), watch: Watch::None });

/// Set once the groups are being ended.
static ENDING: AtomicBool = AtomicBool::new(false);

struct Running {
    groups: BTreeSet<u32>,
    watch: Watch,
}

/// The shell that outlives this program by a moment.
#[derive(Debug)]
enum Watch {
    /// Not started yet.
    None,
    /// Reads here.
    Of(ChildStdin),
    /// It could not be started, or is gone.
    Lost,
}

impl GroupGuard {
    /// Registers the group led by process `leader`.
    pub fn new(leader: u32) -> Self {
        let mut running = running();
        running.groups.insert(leader);
        running.watch.tell('+', leader);
        Self(leader)
    }

    /// Kills every process of the group.
    pub fn kill(&self) {
        signal_group(self.0, Signal::KILL);
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        // A child that was ended for the interrupt's sake has not failed, and nobody is to conclude that it has.
        while ENDING.load(Ordering::SeqCst) {
            thread::park();
        }
        let mut running = running();
        running.groups.remove(&self.0);
        running.watch.tell('-', self.0);
    }
}

/// Ends every process group that is still registered, and holds whoever waits for one: only for a program that is about
/// to end itself.
pub fn end_running_groups() {
    ENDING.store(true, Ordering::SeqCst);
    let groups = || running().groups.clone();
    for group in groups() {
        signal_group(group, Signal::TERM);
        // A stopped process acts on the signal only once it is continued.
        signal_group(group, Signal::CONT);
    }
    let begun = Instant::now();
    let lives = |group: &u32| pid_of(*group).is_some_and(|pid| test_kill_process_group(pid).is_ok());
    while begun.elapsed() < GRACE && groups().iter().any(lives) {
        thread::sleep(LOOK);
    }
    groups().into_iter().for_each(|group| signal_group(group, Signal::KILL));
}

impl Watch {
    fn tell(&mut self, what: char, group: u32) {
        if matches!(self, Self::None) {
            *self = Self::start();
        }
        if let Self::Of(stdin) = self
            && stdin.write_all(format!("{what} {group}\n").as_bytes()).is_err()
        {
            *self = Self::Lost;
        }
    }

    /// Without a shell a killed program leaves its children alone, as any program does.
    fn start() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "it has to outlive whoever starts it, and nobody waits for it"
        )]
        let mut shell = std::process::Command::new("/bin/sh");
        let started = shell
            .args(["-c", WATCH])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        started.ok().and_then(|mut shell| shell.stdin.take()).map_or(Self::Lost, Self::Of)
    }
}

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn signal_group(leader: u32, signal: Signal) {
    if let Some(pid) = pid_of(leader) {
        let _ = kill_process_group(pid, signal);
    }
}

/// Process 0 and 1 would address our own group or everybody; no child of ours has these ids.
fn pid_of(leader: u32) -> Option<Pid> {
    i32::try_from(leader).ok().filter(|id| *id > 1).and_then(Pid::from_raw)
}

#[cfg(test)]
pub(in crate::tools) mod tests {
    use super::*;
    use crate::tools::{host, process::Invocation};

    /// Set in the copy of this program that is to be killed: the file for its children's ids.
    const HOLD: &str = "REGRAFT_TEST_HOLD";

    /// Whether a process with this id is alive and not a zombie.
    pub(in crate::tools) fn lives(pid: i32) -> bool {
        let Some(pid) = Pid::from_raw(pid) else { return false };
        if rustix::process::test_kill_process(pid).is_err() {
            return false;
        }
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z')
    }

    /// Whether a process is dead within two seconds.
    pub(in crate::tools) fn gone_soon(pid: i32) -> bool {
        (0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            !lives(pid)
        })
    }

    /// A group whose leader and its child would live for minutes.
    #[expect(clippy::disallowed_methods, reason = "the test is about a bare process")]
    fn group(script: &str) -> std::process::Child {
        let mut shell = std::process::Command::new("/bin/sh");
        shell
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap()
    }

    fn ends(child: &mut std::process::Child, within: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < within {
            if child.try_wait().unwrap().is_some() {
                return true;
            }
            thread::sleep(LOOK);
        }
        false
    }

    #[test]
    fn a_program_that_is_killed_leaves_no_children() {
        let script = "sleep 300 & printf '%s %s\\n' $$ $! > \"$0.new\"; mv \"$0.new\" \"$0\"; wait";
        if let Some(ids) = host::variable(HOLD) {
            Invocation::new("sh").args(["-c", script]).arg(ids).run().unwrap();
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ids");
        #[expect(clippy::disallowed_methods, reason = "the test kills the program that it is part of")]
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "tools::groups::tests::a_program_that_is_killed_leaves_no_children";
        let mut program = program
            .args(["--exact", name])
            .env(HOLD, &file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !file.exists() {
            assert!(begun.elapsed() < Duration::from_secs(20), "its child says who it is");
            thread::sleep(LOOK);
        }
        let ids: Vec<i32> = std::fs::read_to_string(&file)
            .unwrap()
            .split_whitespace()
            .map(|id| id.parse().unwrap())
            .collect();
        assert!(ids.len() == 2 && ids.iter().all(|id| lives(*id)), "{ids:?}");
        program.kill().unwrap();
        program.wait().unwrap();
        assert!(ids.iter().all(|id| gone_soon(*id)), "{ids:?}");
    }

    #[test]
    fn what_still_runs_when_the_teller_is_gone_is_ended_and_nothing_else() {
        let mut watch = Watch::start();
        let mut children =
            ["sleep 300", "sleep 300 & wait", "trap '' TERM; while :; do sleep 1; done"].map(group);
        let mut stranger = group("sleep 300");
        for child in &children {
            watch.tell('+', child.id());
        }
        // One that has been told of and ended, first, in the middle and last in the list.
        for id in [4_000_001, stranger.id(), 4_000_002] {
            watch.tell('+', id);
            watch.tell('-', id);
        }
        watch.tell('-', children[1].id());
        watch.tell('+', children[1].id());
        assert!(!ends(&mut children[0], Duration::from_millis(300)), "nothing ends while somebody tells");
        // What the system does to the pipe of a process that is killed.
        drop(watch);
        for child in &mut children {
            assert!(ends(child, Duration::from_secs(10)));
        }
        assert!(!ends(&mut stranger, Duration::from_millis(100)));
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
