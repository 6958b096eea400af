//! Whether the machine ran out of memory while something was running: what Linux counts, read before, during and
//! after. Elsewhere nothing can be read, and nothing is concluded.

use std::path::{Path, PathBuf};

/// Below this share of all memory the machine counts as exhausted. The kernel keeps about one per cent back for itself.
const EXHAUSTED_SHARE: f64 = 0.02;

/// From this share of the last ten seconds on, with every task stalled on memory, the machine counts as exhausted.
const STALLED_PERCENT: f64 = 10.0;

/// One reading of the kernel's figures; what cannot be read is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MemoryReading {
    /// Processes ended for want of memory in this process's control group and below, since it was made.
    pub group_oom_kills: Option<u64>,
    /// Processes ended for want of memory on the whole machine, since it started.
    pub machine_oom_kills: Option<u64>,
    /// Bytes that could still be allocated without swapping.
    pub available_bytes: Option<u64>,
    /// Bytes of memory that the machine has.
    pub total_bytes: Option<u64>,
    /// Share of the last ten seconds in which every task waited for memory.
    pub stalled_percent: Option<f64>,
}

/// Watches memory while a child lives.
#[derive(Debug, Clone)]
pub struct MemoryWatch {
    root: PathBuf,
    first: MemoryReading,
    lowest_available_bytes: Option<u64>,
}

impl MemoryWatch {
    /// Takes the first reading.
    pub fn begin() -> Self {
        Self::begin_at(Path::new("/"))
    }

    fn begin_at(root: &Path) -> Self {
        let first = read_all(root);
        Self { root: root.to_owned(), first, lowest_available_bytes: first.available_bytes }
    }

    /// Takes a cheap reading in between.
    pub fn sample(&mut self) {
        let (available, _) = read_meminfo(&self.root);
        if let Some(available) = available {
            let lowest = self.lowest_available_bytes.map_or(available, |lowest| lowest.min(available));
            self.lowest_available_bytes = Some(lowest);
        }
    }

    /// Takes the last reading and says by what sign memory had run out, if it had.
    pub fn exhaustion(&mut self) -> Option<String> {
        self.sample();
        exhaustion_sign(&self.first, &read_all(&self.root), self.lowest_available_bytes)
    }
}

/// The sign by which memory had run out between two readings, strongest first.
pub fn exhaustion_sign(
    first: &MemoryReading,
    last: &MemoryReading,
    lowest_available_bytes: Option<u64>,
) -> Option<String> {
    let rose = |before: Option<u64>, after: Option<u64>| {
        before.zip(after).is_some_and(|(before, after)| after > before)
    };
    if rose(first.group_oom_kills, last.group_oom_kills) {
        return Some("the control group's count of oom kills rose".into());
    }
    if rose(first.machine_oom_kills, last.machine_oom_kills) {
        return Some("the machine's count of oom kills rose".into());
    }
    if let Some((lowest, total)) = lowest_available_bytes.zip(last.total_bytes)
        && (lowest as f64) < EXHAUSTED_SHARE * total as f64
    {
        let (lowest, total) = (lowest >> 20, total >> 20);
        return Some(format!("only {lowest} of {total} MiB of memory were available"));
    }
    match last.stalled_percent {
        Some(percent) if percent >= STALLED_PERCENT => {
            Some(format!("every task waited for memory {percent} % of the last ten seconds"))
        }
        _ => None,
    }
}

fn read_all(root: &Path) -> MemoryReading {
    let (available_bytes, total_bytes) = read_meminfo(root);
    MemoryReading {
        group_oom_kills: read_group_kills(root),
        machine_oom_kills: read(root, "proc/vmstat").and_then(|text| field(&text, "oom_kill")),
        available_bytes,
        total_bytes,
        stalled_percent: read(root, "proc/pressure/memory").and_then(|text| full_avg10(&text)),
    }
}

fn read(root: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(root.join(path)).ok()
}

fn read_meminfo(root: &Path) -> (Option<u64>, Option<u64>) {
    let Some(text) = read(root, "proc/meminfo") else { return (None, None) };
    let bytes = |name| field(&text, name).map(|kib| kib * 1_024);
    (bytes("MemAvailable:"), bytes("MemTotal:"))
}

/// The count of this process's own control group, in either version of the interface.
fn read_group_kills(root: &Path) -> Option<u64> {
    let groups = read(root, "proc/self/cgroup")?;
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?.trim_start_matches('/'));
        let file = match controllers {
            "" => Path::new("sys/fs/cgroup").join(path).join("memory.events"),
            "memory" => Path::new("sys/fs/cgroup/memory").join(path).join("memory.oom_control"),
            _ => return None,
        };
        field(&read(root, file.to_str()?)?, "oom_kill")
    })
}

/// The number after `name` on the line that begins with it.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        if words.next()? != name {
            return None;
        }
        words.next()?.parse().ok()
    })
}

fn full_avg10(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("full "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("avg10=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_kill_in_the_own_group_is_seen_in_both_interfaces() {
        for (group, file) in [
            ("0::/a/b\n", "sys/fs/cgroup/a/b/memory.events"),
            ("9:cpu:/x\n4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.oom_control"),
        ] {
            let root = machine(&[("proc/self/cgroup", group), (file, "under_oom 0\noom_kill 2\n")]);
            let mut watch = MemoryWatch::begin_at(root.path());
            assert_eq!(watch.exhaustion(), None, "{file}");
            std::fs::write(root.path().join(file), "under_oom 0\noom_kill 3\n").unwrap();
            assert_eq!(watch.exhaustion().as_deref(), Some("the control group's count of oom kills rose"));
        }
    }

    #[test]
    fn the_lowest_sample_counts_not_the_last() {
        let meminfo = |kib: u64| format!("MemTotal:  1000000 kB\nMemFree: 5 kB\nMemAvailable: {kib} kB\n");
        let root = machine(&[("proc/meminfo", &meminfo(900_000))]);
        let path = root.path().join("proc/meminfo");
        let mut watch = MemoryWatch::begin_at(root.path());
        std::fs::write(&path, meminfo(30_000)).unwrap();
        watch.sample();
        assert_eq!(watch.exhaustion(), None);
        std::fs::write(&path, meminfo(10_000)).unwrap();
        watch.sample();
        std::fs::write(&path, meminfo(900_000)).unwrap();
        let sign = watch.exhaustion();
        assert_eq!(sign.as_deref(), Some("only 9 of 976 MiB of memory were available"));
    }

    #[test]
    fn stalls_and_kills_elsewhere_are_named() {
        let stalled = "some avg10=90.00 avg60=1\nfull avg10=12.50 avg60=1.0 avg300=0.1 total=5\n";
        let root = machine(&[("proc/vmstat", "oom_kill 1\n"), ("proc/pressure/memory", stalled)]);
        let mut watch = MemoryWatch::begin_at(root.path());
        let sign = watch.exhaustion();
        assert_eq!(sign.as_deref(), Some("every task waited for memory 12.5 % of the last ten seconds"));
        std::fs::write(root.path().join("proc/vmstat"), "oom_kill 2\n").unwrap();
        assert_eq!(watch.exhaustion().as_deref(), Some("the machine's count of oom kills rose"));
    }

    #[test]
    fn a_machine_without_these_files_gives_no_sign() {
        let root = machine(&[]);
        assert_eq!(MemoryWatch::begin_at(root.path()).exhaustion(), None);
    }
}
