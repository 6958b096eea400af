//! Answers whether a library may be shipped: whole, complete against a list of kernels, loadable on the OS wanted. Where
//! the list comes from is the caller's affair.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::{
    family::is_nax,
    inventory::{MACOS_PLATFORM, header_document, toolchain_documents, toolchains},
    parse::{FunctionKind, Library, Version},
};

/// What the library is held against. Without either, only what the library says of itself is checked.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The oldest OS that the library must load on.
    pub deployment_target: Option<Version>,
    /// The kernels that the host will ask for.
    pub kernels: Option<BTreeSet<String>>,
}

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Audit {
    /// The library's header.
    pub header: Value,
    /// Who compiled its functions.
    pub toolchains: Vec<Value>,
    /// Hashes checked, which is all of them.
    pub hashes_checked: usize,
    /// Kernels for the neural accelerators.
    pub nax_kernels: usize,
    /// How many kernels were asked for; `null` when no list was given.
    pub kernels_wanted: Option<usize>,
    /// Everything found, errors first.
    pub findings: Vec<AuditFinding>,
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditFinding {
    /// A stable name for the kind of finding.
    pub code: &'static str,
    /// How bad it is.
    pub severity: AuditSeverity,
    /// What it means, in a sentence.
    pub message: String,
    /// The functions concerned, sorted; empty when it is the library as a whole.
    pub functions: Vec<String>,
}

/// How bad a finding is: a warning asks for a further check, an error forbids shipping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditSeverity {
    /// The library must not be shipped.
    Error,
    /// Something to look at, or to prove by a probe.
    Warning,
}

impl Audit {
    /// Whether the library may be shipped as far as this audit can tell.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == AuditSeverity::Warning)
    }
}

/// The OS version from which kernels for the neural accelerators are sound. Apple's compiler accepts an older floor with no more than
/// a warning, and wrong numbers have been reported from such builds.
pub const NAX_FLOOR: Version = Version::new(26, 2);

/// Checks a library: every hash, and everything in `wanted`.
#[must_use]
pub fn audit(library: &Library<'_>, wanted: &Wanted) -> Audit {
    let (mismatches, made_by) = rayon::join(|| super::hash_mismatches(library), || toolchains(library));
    let floor = library.header.os_floor;
    let nax: Vec<&str> = library.functions.iter().map(|f| f.name).filter(|name| is_nax(name)).collect();
    let mut findings = Findings(Vec::new());

    if library.functions.is_empty() {
        findings.error("no-functions", "the library holds no function at all".into(), []);
    }
    if library.header.platform != MACOS_PLATFORM {
        let message =
            format!("the library is for platform {:#06x}, macOS is 0x8001", library.header.platform);
        findings.error("not-macos", message, []);
    }
    if !mismatches.is_empty() {
        let message = format!(
            "{} of {} functions do not have the hash that the library states",
            mismatches.len(),
            library.functions.len()
        );
        findings.error("hash-mismatch", message, mismatches);
    }
    if let Some(target) = wanted.deployment_target {
        if floor > target {
            let message = format!(
                "the library loads on macOS {floor} and later, {target} is wanted: users of {target} cannot load it"
            );
            findings.error("floor-too-high", message, []);
        } else if floor < target {
            let message = format!(
                "the library was built for macOS {floor}, {target} is wanted: its kernels use the older language version"
            );
            findings.warning("floor-below-target", message, []);
        }
    }
    if !nax.is_empty() && floor < NAX_FLOOR {
        let message = format!(
            "{} NAX kernels with an OS floor of {floor}, below {NAX_FLOOR}: prove them with a model-sized numeric probe",
            nax.len()
        );
        findings.warning("nax-floor", message, nax.iter().copied());
    }
    check_targets(&made_by, floor, &mut findings);
    if made_by.len() > 1 {
        let message = format!("{} different toolchains compiled parts of this library", made_by.len());
        findings.warning("mixed-toolchains", message, []);
    }
    let unreadable = made_by.get(&super::Toolchain { compiler: None, sdk: None, target: None });
    if let Some(count) = unreadable {
        findings.warning("unreadable-bitcode", format!("{count} functions do not say who compiled them"), []);
    }
    let others: Vec<&str> =
        library.functions.iter().filter(|f| f.kind != FunctionKind::KERNEL).map(|f| f.name).collect();
    if !others.is_empty() {
        findings.warning("not-a-kernel", format!("{} functions are no kernels", others.len()), others);
    }
    if let Some(kernels) = &wanted.kernels {
        let have: BTreeSet<&str> = library.functions.iter().map(|f| f.name).collect();
        let missing: Vec<&str> =
            kernels.iter().map(String::as_str).filter(|name| !have.contains(name)).collect();
        if !missing.is_empty() {
            let message =
                format!("{} of {} wanted kernels are not in the library", missing.len(), kernels.len());
            findings.error("missing-kernel", message, missing);
        }
        let extra: Vec<&str> = have.iter().copied().filter(|name| !kernels.contains(*name)).collect();
        if !extra.is_empty() {
            let message = format!(
                "{} functions are in the library that nobody asked for: it may be of another version",
                extra.len()
            );
            findings.warning("unexpected-kernel", message, extra);
        }
    }
    let mut findings = findings.0;
    findings.sort_by_key(|finding| (finding.severity, finding.code));
    Audit {
        header: header_document(library),
        toolchains: toolchain_documents(&made_by),
        hashes_checked: library.functions.len(),
        nax_kernels: nax.len(),
        kernels_wanted: wanted.kernels.as_ref().map(BTreeSet::len),
        findings,
    }
}

/// The linker takes the library's floor from one object file, so that the others may have been compiled for a later OS.
fn check_targets(
    made_by: &std::collections::BTreeMap<super::Toolchain, usize>,
    floor: Version,
    findings: &mut Findings,
) {
    for (toolchain, count) in made_by {
        let Some(target) = toolchain.target.as_deref() else { continue };
        let Some(compiled_for) = target.split_once("macosx").and_then(|(_, v)| v.parse::<Version>().ok())
        else {
            findings.warning(
                "odd-target",
                format!("{count} functions were compiled for `{}`", target.escape_debug()),
                [],
            );
            continue;
        };
        if compiled_for > floor {
            let message = format!(
                "{count} functions were compiled for macOS {compiled_for}, the library claims to load from {floor}"
            );
            findings.error("function-floor", message, []);
        }
    }
}

struct Findings(Vec<AuditFinding>);

impl Findings {
    fn error<'a>(
        &mut self,
        code: &'static str,
        message: String,
        functions: impl IntoIterator<Item = &'a str>,
    ) {
        self.add(code, AuditSeverity::Error, message, functions);
    }

    fn warning<'a>(
        &mut self,
        code: &'static str,
        message: String,
        functions: impl IntoIterator<Item = &'a str>,
    ) {
        self.add(code, AuditSeverity::Warning, message, functions);
    }

    fn add<'a>(
        &mut self,
        code: &'static str,
        severity: AuditSeverity,
        message: String,
        functions: impl IntoIterator<Item = &'a str>,
    ) {
        let mut functions: Vec<String> = functions.into_iter().map(ToOwned::to_owned).collect();
        functions.sort_unstable();
        self.0.push(AuditFinding { code, severity, message, functions });
    }
}

/// Reads a list of kernels: one name a line, blank lines and lines that start with `#` left out.
///
/// # Errors
/// The number of the first line that holds more than one word, and a complaint when no name is left.
pub fn parse_kernel_list(text: &str) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.contains(char::is_whitespace) {
            return Err(format!("line {}: expected one kernel name", index + 1));
        }
        names.insert(line.to_owned());
    }
    if names.is_empty() { Err("no kernel name in it".to_owned()) } else { Ok(names) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::metallib::synthetic::{SyntheticKernel, SyntheticLibrary, SyntheticModule};

    const NAX: &str = "affine_qmm_t_nax_float16_t_gs_64";

    fn codes(spec: &SyntheticLibrary, wanted: &Wanted) -> Vec<(&'static str, AuditSeverity)> {
        let bytes = spec.build();
        let audit = audit(&Library::parse(&bytes).unwrap(), wanted);
        assert_eq!(audit.passes(), audit.findings.iter().all(|f| f.severity != AuditSeverity::Error));
        audit.findings.iter().map(|f| (f.code, f.severity)).collect()
    }

    fn kernels(names: &[&str]) -> Option<BTreeSet<String>> {
        Some(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn each_fault_has_its_finding() {
        use AuditSeverity::{Error, Warning};
        let plain = SyntheticLibrary::of(&["a", "b"]);
        let for_26 = |floor| SyntheticLibrary { os_floor: floor, ..SyntheticLibrary::of(&["a", NAX]) };
        let mut foreign = plain.clone();
        let module = SyntheticModule { sdk: vec![15, 0], ..Default::default() };
        foreign.kernels[1] = SyntheticKernel { bitcode: module.build(), ..SyntheticKernel::named("b") };
        let mut newer = plain.clone();
        let module = SyntheticModule { triple: "air64-apple-macosx26.2.0".into(), ..Default::default() };
        newer.kernels = vec![SyntheticKernel { bitcode: module.build(), ..SyntheticKernel::named("b") }];
        let mut opaque = plain.clone();
        opaque.kernels[0].bitcode = b"not bitcode".to_vec();
        let target =
            |major, minor| Wanted { deployment_target: Some(Version::new(major, minor)), kernels: None };
        let list = |names: &[&str]| Wanted { deployment_target: None, kernels: kernels(names) };
        let cases = [
            ("nothing asked", &plain, Wanted::default(), vec![]),
            ("floor as wanted", &plain, target(14, 0), vec![]),
            ("floor too high", &plain, target(13, 5), vec![("floor-too-high", Error)]),
            ("floor too low", &plain, target(26, 2), vec![("floor-below-target", Warning)]),
            ("complete", &plain, list(&["a", "b"]), vec![]),
            ("a kernel missing", &plain, list(&["a", "b", "c"]), vec![("missing-kernel", Error)]),
            ("a kernel too many", &plain, list(&["a"]), vec![("unexpected-kernel", Warning)]),
            ("NAX below 26.2", &for_26(Version::new(26, 0)), Wanted::default(), vec![("nax-floor", Warning)]),
            ("NAX from 26.2", &for_26(Version::new(26, 2)), Wanted::default(), vec![]),
            ("two SDKs", &foreign, Wanted::default(), vec![("mixed-toolchains", Warning)]),
            ("compiled for later", &newer, Wanted::default(), vec![("function-floor", Error)]),
            (
                "no bitcode",
                &opaque,
                Wanted::default(),
                vec![("mixed-toolchains", Warning), ("unreadable-bitcode", Warning)],
            ),
            ("empty", &SyntheticLibrary::of(&[]), Wanted::default(), vec![("no-functions", Error)]),
        ];
        for (what, spec, wanted, findings) in cases {
            assert_eq!(codes(spec, &wanted), findings, "{what}");
        }
    }

    #[test]
    fn a_wrong_hash_is_an_error_that_names_the_kernel() {
        let mut bytes = SyntheticLibrary::of(&["a", "b"]).build();
        let code = {
            let library = Library::parse(&bytes).unwrap();
            library.functions[1].bitcode.as_ptr() as usize - bytes.as_ptr() as usize
        };
        bytes[code + 300] ^= 1;
        let audit = audit(&Library::parse(&bytes).unwrap(), &Wanted::default());
        assert!(!audit.passes());
        assert_eq!(
            (audit.findings[0].code, &audit.findings[0].functions[..]),
            ("hash-mismatch", &["b".to_owned()][..])
        );
    }

    #[test]
    fn a_kernel_list_has_one_name_a_line() {
        assert_eq!(parse_kernel_list("# made by hand\n a \r\n\nb\na\n"), Ok(kernels(&["a", "b"]).unwrap()));
        assert_eq!(parse_kernel_list("a\nb c\n"), Err("line 2: expected one kernel name".into()));
        assert_eq!(parse_kernel_list("# nothing\n"), Err("no kernel name in it".into()));
    }
}
