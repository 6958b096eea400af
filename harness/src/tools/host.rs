//! Facts about this machine: platform, processor, memory, free disk space, where programs are. Facts that cannot be
//! found out are absent, never guessed.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    thread,
};

use serde::{Deserialize, Serialize};

use crate::tools::process::Invocation;

/// What a figure measured here depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// `linux`, `macos`.
    pub os: String,
    /// `x86_64`, `aarch64`.
    pub arch: String,
    /// The processor's name.
    pub cpu: Option<String>,
    /// Threads that can run at once.
    pub threads: usize,
    /// Physical memory.
    pub memory_bytes: Option<u64>,
}

/// Looks at this machine.
pub fn host_facts() -> HostFacts {
    HostFacts {
        os: env::consts::OS.to_owned(),
        arch: env::consts::ARCH.to_owned(),
        cpu: cpu_name(),
        threads: thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: memory_bytes(),
    }
}

/// Free bytes on the disk that holds `path`, or its nearest parent that exists.
pub fn free_disk_bytes(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|p| p.exists())?;
    let stat = rustix::fs::statvfs(existing).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

/// Where `program` lies: the first match on `PATH`, or the path itself if it names a file.
pub fn find_program(program: &str) -> Option<PathBuf> {
    which::which(program).ok()
}

/// The folder for downloads: `REGRAFT_CACHE_DIR`, or `regraft` in the user's cache folder, or `fallback` without a home.
pub fn cache_dir(fallback: &Path) -> PathBuf {
    use etcetera::BaseStrategy as _;
    if let Some(dir) = env::var_os("REGRAFT_CACHE_DIR").filter(|d| !d.is_empty()) {
        return std::path::absolute(&dir).unwrap_or_else(|_| PathBuf::from(dir));
    }
    etcetera::choose_base_strategy().map_or_else(|_| fallback.to_owned(), |s| s.cache_dir().join("regraft"))
}

/// An environment variable of this process, as text.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// All environment variables of this process whose name begins with `prefix`, as text.
pub fn variables(prefix: &str) -> BTreeMap<String, String> {
    env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .filter(|(name, _)| name.starts_with(prefix))
        .collect()
}

/// Differs between builds of this program: size and time of its file.
pub fn program_stamp() -> Option<String> {
    let file = fs::metadata(env::current_exe().ok()?).ok()?;
    Some(format!("{} {:?}", file.len(), file.modified().ok()?))
}

fn cpu_name() -> Option<String> {
    if cfg!(target_os = "macos") {
        return sysctl("machdep.cpu.brand_string");
    }
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    // ARM kernels give no name, only numbers of implementer and part.
    let field = |name: &str| {
        info.lines().find_map(|l| {
            l.split_once(':').filter(|(k, _)| k.trim() == name).map(|(_, v)| v.trim().to_owned())
        })
    };
    field("model name")
        .or_else(|| Some(format!("implementer {} part {}", field("CPU implementer")?, field("CPU part")?)))
}

fn memory_bytes() -> Option<u64> {
    if cfg!(target_os = "macos") {
        return sysctl("hw.memsize")?.parse().ok();
    }
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = info
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    kib.checked_mul(1024)
}

fn sysctl(name: &str) -> Option<String> {
    Some(Invocation::new("sysctl").args(["-n", name]).run_ok().ok()?.stdout.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_disk_and_a_shell() {
        let facts = host_facts();
        assert!(facts.threads > 0);
        assert!(facts.memory_bytes.is_some_and(|b| b > 64 << 20), "{facts:?}");
        assert!(free_disk_bytes(Path::new("/no/such/folder/yet")).is_some());
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("regraft-no-such-program"), None);
    }
}
