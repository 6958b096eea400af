//! Under what conditions something is measured: governor, load, pressure, swap, free memory, power, heat, GPUs. Read before
//! and after; what a platform does not tell is absent. [`changed`] says what makes a measurement in between worthless.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use crate::tools::{host::find_program, numbered, process::Invocation};

/// Swapping more than this between two readings changes a measurement.
const SWAPPED_BYTES: u64 = 16 << 20;

/// Below this share of all memory a machine is about to swap or kill.
const FREE_SHARE: f64 = 0.02;

/// How long a platform's own tools may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// One reading.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Frequency governor of the first processor, `performance` or `schedutil`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Load average over one minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_1m: Option<f64>,
    /// Share of the last ten seconds, in per cent, in which some task waited for a processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_pressure: Option<f64>,
    /// The same for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure: Option<f64>,
    /// The same for input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_pressure: Option<f64>,
    /// Processor time that a hypervisor gave to others, in ticks since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_ticks: Option<u64>,
    /// Bytes in swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_used_bytes: Option<u64>,
    /// Bytes moved to and from swap since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swapped_bytes: Option<u64>,
    /// Bytes that can be allocated without swapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// Bytes of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// `ac`, `battery`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<String>,
    /// How often processors were slowed for heat since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_events: Option<u64>,
    /// The share of its speed, in per cent, that the system leaves a processor for heat's sake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_limit: Option<u64>,
    /// `yes` where a hypervisor is seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualised: Option<String>,
    /// NVIDIA's GPUs, by index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "numbered::map")]
    pub gpus: BTreeMap<u32, Gpu>,
    /// What the processors' energy counters say.
    #[serde(default)]
    pub energy: Energy,
}

/// A reading of energy counters, or why there is none: nobody takes the one for the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Energy {
    /// One entry a counter, sorted by name.
    Counters(Vec<EnergyCounter>),
    /// Nothing could be read.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// One counter, which begins again at 0 where it is full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnergyCounter {
    /// The system's name of what it counts.
    pub name: String,
    /// Microjoules so far.
    pub microjoules: u64,
    /// The most that it holds.
    pub most_microjoules: u64,
}

impl Default for Energy {
    fn default() -> Self {
        Self::Unknown { reason: "it was not read".to_owned() }
    }
}

impl Energy {
    /// Joules from this reading to a later one, all counters together; a counter may have begun again once in between.
    ///
    /// # Errors
    /// The reason, where either reading is none or they are of different counters.
    pub fn joules_until(&self, later: &Self) -> Result<f64, String> {
        let (Self::Counters(before), Self::Counters(after)) = (self, later) else {
            let reason = |energy: &Self| match energy {
                Self::Unknown { reason } => Some(reason.clone()),
                Self::Counters(_) => None,
            };
            return Err(reason(self).or_else(|| reason(later)).unwrap_or_default());
        };
        if !before.iter().map(|c| &c.name).eq(after.iter().map(|c| &c.name)) {
            return Err("the counters changed in between".to_owned());
        }
        let spent =
            before.iter().zip(after).map(|(was, is)| match is.microjoules.checked_sub(was.microjoules) {
                Some(spent) => spent,
                None => was.most_microjoules.saturating_sub(was.microjoules) + is.microjoules,
            });
        Ok(spent.sum::<u64>() as f64 / 1e6)
    }
}

/// One NVIDIA GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Streaming multiprocessors' clock, in MHz.
    pub sm_mhz: Option<f64>,
    /// In degrees Celsius.
    pub temperature_c: Option<f64>,
    /// In watts.
    pub power_w: Option<f64>,
    /// Bytes of other and own processes on it.
    pub used_bytes: Option<u64>,
    /// Whether it is slowed for heat, by its own account.
    pub slowed_for_heat: Option<bool>,
}

/// What NVIDIA's own tool says of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUse {
    /// The GPUs, by name.
    pub gpus: Vec<String>,
    /// Bytes that the process holds on them; absent where the tool lists no process of that number.
    pub process_bytes: Option<u64>,
    /// Bytes that all processes hold on them.
    pub held_bytes: u64,
}

/// Asks NVIDIA's own tool about a process; `None` where there is no such tool, or no GPU.
pub fn gpu_use(pid: u32) -> Option<GpuUse> {
    find_program("nvidia-smi")?;
    let query = |what: &str| ask("nvidia-smi", &[what, "--format=csv,noheader,nounits"]);
    let (gpus, processes) = (
        query("--query-gpu=name,memory.used")?,
        query("--query-compute-apps=pid,used_memory").unwrap_or_default(),
    );
    gpu_use_of(pid, &gpus, &processes)
}

fn gpu_use_of(pid: u32, gpus: &str, processes: &str) -> Option<GpuUse> {
    let rows = |text: &str| -> Vec<(String, Option<u64>)> {
        text.lines()
            .filter_map(|line| {
                let (name, mib) = line.rsplit_once(',')?;
                Some((name.trim().to_owned(), mib.trim().parse::<u64>().ok().map(|mib| mib << 20)))
            })
            .collect()
    };
    let gpus = rows(gpus);
    let own: Vec<u64> =
        rows(processes).iter().filter(|row| row.0 == pid.to_string()).filter_map(|row| row.1).collect();
    (!gpus.is_empty()).then(|| GpuUse {
        held_bytes: gpus.iter().filter_map(|row| row.1).sum(),
        gpus: gpus.into_iter().map(|row| row.0).collect(),
        process_bytes: (!own.is_empty()).then(|| own.iter().sum()),
    })
}

/// Whether a reading includes GPUs, which cost half a second to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gpus {
    /// Asks NVIDIA's own tool, where it is there.
    Read,
    /// Leaves them out.
    Leave,
}

/// Takes a reading of this machine.
pub fn read(gpus_wanted: Gpus) -> Conditions {
    let mut conditions = match cfg!(target_os = "macos") {
        true => macos(&ask),
        false => linux(Path::new("/")),
    };
    if gpus_wanted == Gpus::Read
        && find_program("nvidia-smi").is_some()
        && let Some(text) = ask(
            "nvidia-smi",
            &[
                "--query-gpu=index,name,clocks.sm,temperature.gpu,power.draw,memory.used,clocks_event_reasons.sw_thermal_slowdown",
                "--format=csv,noheader,nounits",
            ],
        )
    {
        conditions.gpus = gpus(&text);
        // The processors' counters would say little of work on a GPU.
        conditions.energy = Energy::Unknown {
            reason: "nvidia-smi answers no question about energy, and power at an instant is no energy"
                .to_owned(),
        };
    }
    conditions
}

/// What changed between two readings, where it makes a measurement in between worthless. Load and pressure are no such
/// thing: on a shared machine they always move, both arms see them, and the spread tells.
pub fn changed(before: &Conditions, after: &Conditions) -> Option<String> {
    let differs = |what: &str, before: &Option<String>, after: &Option<String>| {
        (before != after).then(|| {
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
            format!("the {what} changed from {} to {}", text(before), text(after))
        })
    };
    let rose =
        |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?)).filter(|by| *by > 0);
    differs("governor", &before.governor, &after.governor)
        .or_else(|| differs("power source", &before.power, &after.power))
        .or_else(|| {
            rose(before.throttle_events, after.throttle_events)
                .map(|by| format!("processors were slowed for heat {by} times"))
        })
        .or_else(|| match (before.speed_limit, after.speed_limit) {
            (Some(was), Some(is)) if was != is => {
                Some(format!("the system's speed limit went from {was} to {is} %"))
            }
            _ => None,
        })
        .or_else(|| {
            rose(before.swapped_bytes, after.swapped_bytes)
                .filter(|bytes| *bytes > SWAPPED_BYTES)
                .map(|bytes| format!("{} MiB went to or from swap", bytes >> 20))
        })
        .or_else(|| {
            let (free, total) = (after.available_bytes?, after.total_bytes?);
            ((free as f64) < FREE_SHARE * total as f64)
                .then(|| format!("only {} of {} MiB of memory were left", free >> 20, total >> 20))
        })
        .or_else(|| {
            after.gpus.iter().find_map(|(index, gpu)| {
                let was = before.gpus.get(index)?.slowed_for_heat;
                (gpu.slowed_for_heat != was)
                    .then(|| format!("GPU {index} began or ceased to be slowed for heat"))
            })
        })
}

fn ask(program: &str, args: &[&str]) -> Option<String> {
    Some(Invocation::new(program).args(args).timeout(PATIENCE).run_ok().ok()?.stdout)
}

fn linux(root: &Path) -> Conditions {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let meminfo = text("proc/meminfo").unwrap_or_default();
    let kib = |name: &str| field(&meminfo, name)?.checked_mul(1024);
    let vmstat = text("proc/vmstat").unwrap_or_default();
    let pages = field(&vmstat, "pswpin").zip(field(&vmstat, "pswpout")).map(|(i, o)| i + o);
    let pressure = |what: &str| {
        let text = text(&format!("proc/pressure/{what}"))?;
        let line = text.lines().find(|line| line.starts_with("some "))?.to_owned();
        line.split_whitespace().find_map(|word| word.strip_prefix("avg10=")?.parse().ok())
    };
    let cpuinfo = text("proc/cpuinfo").unwrap_or_default();
    Conditions {
        governor: text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").map(|t| t.trim().to_owned()),
        load_1m: text("proc/loadavg").and_then(|t| t.split_whitespace().next()?.parse().ok()),
        cpu_pressure: pressure("cpu"),
        memory_pressure: pressure("memory"),
        io_pressure: pressure("io"),
        stolen_ticks: text("proc/stat")
            .and_then(|t| t.lines().next()?.split_whitespace().nth(8)?.parse().ok()),
        swap_used_bytes: kib("SwapTotal:").zip(kib("SwapFree:")).map(|(total, free)| total - free.min(total)),
        swapped_bytes: pages.map(|pages| pages * 4096),
        available_bytes: kib("MemAvailable:"),
        total_bytes: kib("MemTotal:"),
        power: linux_power(&root.join("sys/class/power_supply")),
        throttle_events: throttle_events(&root.join("sys/devices/system/cpu")),
        speed_limit: None,
        virtualised: (!cpuinfo.is_empty()).then(|| {
            let seen = cpuinfo
                .lines()
                .any(|line| line.starts_with("flags") && line.split_whitespace().any(|w| w == "hypervisor"));
            if seen { "yes" } else { "not seen" }.to_owned()
        }),
        gpus: BTreeMap::new(),
        energy: linux_energy(&root.join("sys/class/powercap")),
    }
}

/// The kernel's counters of whole packages; those below them (`intel-rapl:0:1`) are part of one.
fn linux_energy(zones: &Path) -> Energy {
    let unknown = |reason: &str| Energy::Unknown { reason: reason.to_owned() };
    let mut counters = Vec::new();
    for zone in fs::read_dir(zones).into_iter().flatten().flatten() {
        if zone.file_name().to_string_lossy().matches(':').count() != 1 {
            continue;
        }
        let file = |name: &str| fs::read_to_string(zone.path().join(name));
        let number = |name: &str| file(name).ok()?.trim().parse::<u64>().ok();
        let Some((microjoules, most_microjoules)) = number("energy_uj").zip(number("max_energy_range_uj"))
        else {
            return unknown(
                "the kernel's energy counters cannot be read; most kernels let only root read them",
            );
        };
        let name = file("name").map_or_else(|_| String::new(), |name| name.trim().to_owned());
        counters.push(EnergyCounter {
            name: format!("{} {name}", zone.file_name().to_string_lossy()),
            microjoules,
            most_microjoules,
        });
    }
    counters.sort_by(|a, b| a.name.cmp(&b.name));
    match counters.is_empty() {
        true => unknown("the kernel has no energy counter (nothing below /sys/class/powercap)"),
        false => Energy::Counters(counters),
    }
}

fn linux_power(supplies: &Path) -> Option<String> {
    let mut mains = None;
    for supply in fs::read_dir(supplies).ok()?.flatten() {
        let file = |name: &str| fs::read_to_string(supply.path().join(name)).ok();
        if file("type")?.trim() == "Mains" {
            mains = Some(mains == Some(true) || file("online")?.trim() == "1");
        }
    }
    mains.map(|on| if on { "ac" } else { "battery" }.to_owned())
}

fn throttle_events(cpus: &Path) -> Option<u64> {
    let counts: Vec<u64> = fs::read_dir(cpus)
        .ok()?
        .flatten()
        .filter_map(|cpu| {
            let path = cpu.path().join("thermal_throttle/core_throttle_count");
            fs::read_to_string(path).ok()?.trim().parse().ok()
        })
        .collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// What macOS's own tools tell; `ask` runs one and gives its stdout.
fn macos(ask: &dyn Fn(&str, &[&str]) -> Option<String>) -> Conditions {
    let sysctl = |name: &str| ask("sysctl", &["-n", name]).map(|text| text.trim().to_owned());
    let vm_stat = ask("vm_stat", &[]).unwrap_or_default();
    let page = vm_stat
        .lines()
        .next()
        .and_then(|line| line.split("page size of ").nth(1)?.split_whitespace().next()?.parse::<u64>().ok());
    let pages = |name: &str| {
        let line = vm_stat.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().trim_end_matches('.').parse::<u64>().ok()?.checked_mul(page?)
    };
    let therm = ask("pmset", &["-g", "therm"]).unwrap_or_default();
    Conditions {
        load_1m: sysctl("vm.loadavg").and_then(|t| t.split_whitespace().nth(1)?.parse().ok()),
        swap_used_bytes: sysctl("vm.swapusage").and_then(|t| {
            let used = t.split("used = ").nth(1)?.split_whitespace().next()?.to_owned();
            Some((used.strip_suffix('M')?.parse::<f64>().ok()? * f64::from(1 << 20)) as u64)
        }),
        swapped_bytes: pages("Swapins").zip(pages("Swapouts")).map(|(i, o)| i + o),
        available_bytes: pages("Pages free").zip(pages("Pages inactive")).map(|(free, idle)| free + idle),
        total_bytes: sysctl("hw.memsize").and_then(|t| t.parse().ok()),
        power: ask("pmset", &["-g", "batt"]).and_then(|t| {
            let source = t.split('\'').nth(1)?;
            Some(if source.starts_with("AC") { "ac" } else { "battery" }.to_owned())
        }),
        speed_limit: therm.lines().find_map(|line| {
            line.trim().strip_prefix("CPU_Speed_Limit")?.trim().strip_prefix('=')?.trim().parse().ok()
        }),
        virtualised: sysctl("kern.hv_vmm_present")
            .map(|t| if t == "1" { "yes" } else { "not seen" }.to_owned()),
        energy: Energy::Unknown { reason: "macOS tells energy to root only".to_owned() },
        ..Conditions::default()
    }
}

/// The lines of `nvidia-smi --format=csv,noheader,nounits` for the fields that [`read`] asks for.
fn gpus(text: &str) -> BTreeMap<u32, Gpu> {
    text.lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let [index, name, clock, temperature, power, used, slowed] = fields[..] else { return None };
            let gpu = Gpu {
                name: name.to_owned(),
                sm_mhz: clock.parse().ok(),
                temperature_c: temperature.parse().ok(),
                power_w: power.parse().ok(),
                used_bytes: used.parse::<u64>().ok().map(|mib| mib << 20),
                slowed_for_heat: match slowed {
                    "Active" => Some(true),
                    "Not Active" => Some(false),
                    _ => None,
                },
            };
            Some((index.parse().ok()?, gpu))
        })
        .collect()
}

/// The number after `name` on the line that begins with it.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_files_become_a_reading() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/loadavg", "1.50 1.20 0.90 2/345 6789\n"),
            ("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 100 kB\nSwapFree: 60 kB\n"),
            ("proc/vmstat", "nr_free_pages 9\npswpin 3\npswpout 4\n"),
            ("proc/pressure/cpu", "some avg10=12.50 avg60=3.00 avg300=1.00 total=5\n"),
            ("proc/stat", "cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1 2 3 4 5 6 7 88 9 10\n"),
            ("proc/cpuinfo", "model name : x\nflags : fpu hypervisor sse\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil\n"),
            ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "2\n"),
            ("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "3\n"),
            ("sys/class/power_supply/AC/type", "Mains\n"),
            ("sys/class/power_supply/AC/online", "0\n"),
            ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
            ("sys/class/powercap/intel-rapl:0/energy_uj", "900\n"),
            ("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000\n"),
            ("sys/class/powercap/intel-rapl:0:0/energy_uj", "400\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let expected = Conditions {
            governor: Some("schedutil".into()),
            load_1m: Some(1.5),
            cpu_pressure: Some(12.5),
            stolen_ticks: Some(88),
            swap_used_bytes: Some(40 << 10),
            swapped_bytes: Some(7 * 4096),
            available_bytes: Some(400 << 10),
            total_bytes: Some(1000 << 10),
            power: Some("battery".into()),
            throttle_events: Some(5),
            virtualised: Some("yes".into()),
            energy: counted("intel-rapl:0 package-0", 900),
            ..Conditions::default()
        };
        assert_eq!(linux(root.path()), expected);
        let nothing = linux(&root.path().join("none"));
        let Energy::Unknown { reason } = &nothing.energy else { panic!("{nothing:?}") };
        assert!(reason.contains("no energy counter"), "{reason}");
        assert_eq!(Conditions { energy: Energy::default(), ..nothing.clone() }, Conditions::default());
        fs::remove_file(root.path().join("sys/class/powercap/intel-rapl:0/energy_uj")).unwrap();
        let Energy::Unknown { reason } = linux(root.path()).energy else { panic!("it cannot be read") };
        assert!(reason.contains("only root"), "{reason}");
    }

    fn counted(name: &str, microjoules: u64) -> Energy {
        Energy::Counters(vec![EnergyCounter { name: name.to_owned(), microjoules, most_microjoules: 1000 }])
    }

    #[test]
    fn energy_is_a_difference_of_counters_or_a_reason() {
        assert_eq!(counted("a", 100).joules_until(&counted("a", 600)), Ok(0.000_5));
        // It began again.
        assert_eq!(counted("a", 900).joules_until(&counted("a", 50)), Ok(0.000_15));
        assert_eq!(
            counted("a", 1).joules_until(&counted("b", 2)),
            Err("the counters changed in between".to_owned())
        );
        for (one, other) in [(Energy::default(), counted("a", 1)), (counted("a", 1), Energy::default())] {
            assert_eq!(one.joules_until(&other), Err("it was not read".to_owned()));
        }
        // A reading of before there was this field.
        assert_eq!(serde_json::from_str::<Conditions>("{}").unwrap(), Conditions::default());
    }

    #[test]
    fn a_process_is_found_among_those_on_the_gpus() {
        let gpus = "NVIDIA H200, 1200\nNVIDIA H200, 4\n";
        let seen = gpu_use_of(71, gpus, "70, 300\n71, 800\n71, 2\n").unwrap();
        assert_eq!((seen.process_bytes, seen.held_bytes), (Some(802 << 20), 1204 << 20));
        assert_eq!(seen.gpus, ["NVIDIA H200", "NVIDIA H200"]);
        // Inside a virtual machine or container the tool may know no numbers or no sizes.
        assert_eq!(gpu_use_of(71, gpus, "").unwrap().process_bytes, None);
        assert_eq!(gpu_use_of(71, gpus, "71, [N/A]\n").unwrap().process_bytes, None);
        assert_eq!(gpu_use_of(71, "", ""), None);
    }

    #[test]
    fn what_macos_tools_print_becomes_a_reading() {
        let printed = |program: &str, args: &[&str]| {
            let text = match (program, args) {
                ("sysctl", ["-n", "vm.loadavg"]) => "{ 2.25 1.80 1.70 }\n",
                ("sysctl", ["-n", "vm.swapusage"]) => {
                    "total = 2048.00M  used = 512.50M  free = 1535.50M  (encrypted)\n"
                }
                ("sysctl", ["-n", "hw.memsize"]) => "17179869184\n",
                ("sysctl", ["-n", "kern.hv_vmm_present"]) => "0\n",
                ("vm_stat", []) => {
                    "Mach Virtual Memory Statistics: (page size of 16384 bytes)\nPages free:                  100.\nPages inactive:               50.\nSwapins:                       3.\nSwapouts:                      1.\n"
                }
                ("pmset", ["-g", "batt"]) => "Now drawing from 'Battery Power'\n -InternalBattery-0 80%\n",
                ("pmset", ["-g", "therm"]) => "Note: No thermal warning level\n\tCPU_Speed_Limit \t= 87\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let expected = Conditions {
            load_1m: Some(2.25),
            swap_used_bytes: Some((512.5 * 1_048_576.0) as u64),
            swapped_bytes: Some(4 * 16384),
            available_bytes: Some(150 * 16384),
            total_bytes: Some(16 << 30),
            power: Some("battery".into()),
            speed_limit: Some(87),
            virtualised: Some("not seen".into()),
            energy: Energy::Unknown { reason: "macOS tells energy to root only".into() },
            ..Conditions::default()
        };
        assert_eq!(macos(&printed), expected);
        assert_eq!(macos(&|_, _| None), Conditions { energy: expected.energy, ..Conditions::default() });
    }

    #[test]
    fn nvidia_lines_become_gpus() {
        let read = gpus(
            "0, NVIDIA H200, 1980, 41, 120.55, 3, Not Active\n1, Other, [N/A], 90, [N/A], 7, Active\nrubbish\n",
        );
        assert_eq!(read.len(), 2);
        assert_eq!((read[&0].sm_mhz, read[&0].used_bytes), (Some(1980.0), Some(3 << 20)));
        assert_eq!((read[&1].sm_mhz, read[&1].slowed_for_heat), (None, Some(true)));
    }

    #[test]
    fn only_what_spoils_a_measurement_counts_as_a_change() {
        let quiet = Conditions {
            power: Some("ac".into()),
            governor: Some("performance".into()),
            throttle_events: Some(1),
            swapped_bytes: Some(0),
            available_bytes: Some(900),
            total_bytes: Some(1000),
            load_1m: Some(0.1),
            ..Conditions::default()
        };
        let with = |change: fn(&mut Conditions)| {
            let mut after = quiet.clone();
            change(&mut after);
            changed(&quiet, &after)
        };
        assert_eq!(with(|_| ()), None);
        assert_eq!(with(|c| c.load_1m = Some(9.0)), None);
        assert_eq!(with(|c| c.swapped_bytes = Some(1 << 20)), None);
        let told = |change| with(change).unwrap();
        assert_eq!(told(|c| c.power = Some("battery".into())), "the power source changed from ac to battery");
        assert_eq!(told(|c| c.throttle_events = Some(3)), "processors were slowed for heat 2 times");
        assert_eq!(told(|c| c.swapped_bytes = Some(64 << 20)), "64 MiB went to or from swap");
        assert!(told(|c| c.available_bytes = Some(10)).starts_with("only 0 of 0 MiB"));
        assert_eq!(told(|c| c.governor = None), "the governor changed from performance to unknown");
    }
}
