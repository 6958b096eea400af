//! The evidence on small forks, as people read it.

use super::{
    report::{AccidentalRevert, PatchState},
    *,
};
use crate::{
    config::fork::parse_fork,
    event::Silent,
    tools::git::fixture::{Edit, ForkFixture},
};

const FORK: &str = "summary = \"\"\n[upstream]\nrepository = \"https://example.org/owner/name\"\nbranch = \"main\"\n\
    tag-prefix = \"v\"\n[stack]\nkind = \"branch\"\nrepository = \"https://example.org/owner/name\"\nbranch = \"fork\"\n";

fn report_with(fixture: &ForkFixture, more: &str) -> ForkReport {
    fixture.name("refs/heads/main", fixture.onto());
    fixture.name("refs/heads/fork", fixture.head());
    let root = tempfile::tempdir().unwrap();
    let spec = parse_fork("fork", "fork.toml", &format!("{FORK}{more}")).unwrap();
    let source = Source::Mirrors(fixture.mirror_root().to_owned());
    let cold = report_fork(root.path(), spec.clone(), &Onto::Latest, &source, &Silent).unwrap();
    let warm = report_fork(root.path(), spec, &Onto::Latest, &source, &Silent).unwrap();
    assert_eq!(render::markdown(&cold), render::markdown(&warm));
    assert_eq!(serde_json::to_string(&cold).unwrap(), serde_json::to_string(&warm).unwrap());
    cold
}

fn report(fixture: &ForkFixture) -> ForkReport {
    report_with(fixture, "")
}

/// What tables and cases say, without ids, which are as long as they are dull.
fn without_ids(fixture: &ForkFixture, text: &str) -> String {
    let named = fixture.upstream.iter().map(|id| (id, "up")).chain(fixture.fork.iter().map(|id| (id, "own")));
    let mut text = text.to_owned();
    for (at, (id, side)) in named.enumerate() {
        text = text.replace(&id.short(), &format!("<{side}-{at}>"));
    }
    text
}

fn functions(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| {
            format!("int lib_{name}(int size, float scale) {{\n  return run_{name}(size, scale);\n}}\n\n")
        })
        .collect()
}

fn header(names: &[&str]) -> String {
    names.iter().map(|name| format!("int lib_{name}(int size, float scale);\n")).collect()
}

#[test]
fn a_revert_is_told_from_an_edit_of_upstreams_lines() {
    let all = ["one", "two", "three", "four"];
    let [old_header, old_source] = [header(&["one", "two"]), functions(&["one", "two"])];
    let [new_header, new_source] = [header(&all), functions(&all)];
    let mut fixture = ForkFixture::new(&[("lib/a.h", &old_header), ("lib/a.c", &old_source)]);
    let grown = fixture.commit(
        &[fixture.base],
        "adds three and four",
        &[("lib/a.h", Some(&new_header)), ("lib/a.c", Some(&new_source))],
    );
    fixture.base = grown;
    fixture.fork = vec![grown];
    fixture.upstream = vec![grown];
    let edited = new_source.replace("run_three(size, scale)", "run_three(size + 1, scale)");
    let reverting = format!("{old_header}int lib_own(int size);\n");
    let back = format!("{new_header}int lib_own(int size);\n");
    let fixture = fixture
        .patch("edits a line of upstream's", &[("lib/a.c", Some(&edited))])
        .patch("adds own", &[("lib/a.h", Some(&reverting)), ("lib/a.c", Some(&old_source))])
        .patch("puts the header back", &[("lib/a.h", Some(&back))])
        .advance("elsewhere", &[("b", Some("b\n"))]);
    let report = report(&fixture);
    let told: Vec<String> = report
        .patches
        .iter()
        .map(|patch| {
            let reverts = patch.reverts.iter().map(|revert| {
                let AccidentalRevert { subject, lines, symbols, places, how, .. } = revert;
                format!("; {lines} of {subject} ({how:?}) at {places:?}, {symbols:?}")
            });
            format!("{:?}{}\n", patch.recommendation, reverts.collect::<String>())
        })
        .collect();
    insta::assert_snapshot!(told.concat(), @r#"
    Look
    Keep; 2 of adds three and four (RemovedSymbol) at ["lib/a.h:3"], ["lib_four", "lib_three"]
    Keep
    "#);
}

fn backports() -> ForkFixture {
    let text = |names: &[&str]| functions(names);
    let base = text(&["a", "b", "c", "d"]);
    let same = text(&["a", "b", "x", "c", "d"]);
    let shifted = text(&["a", "b", "y", "c", "z", "d"]);
    let part = text(&["k", "l", "m"]);
    let edit = |path: &'static str, text: &str| (path, text.to_owned());
    let made = [
        ("lands as it is", vec![edit("src/one.c", &same)]),
        ("lands in two", vec![edit("src/two.c", &shifted)]),
        ("lands in part", vec![edit("src/three.c", &part), edit("src/own.c", &text(&["p", "q", "r"]))]),
        ("is fork's own", vec![edit("src/four.c", &text(&["a", "b", "c", "d", "mine"]))]),
    ];
    let mut fixture = ForkFixture::new(&[
        ("src/one.c", &base),
        ("src/two.c", &base),
        ("src/three.c", ""),
        ("src/four.c", &base),
    ]);
    for (subject, edits) in &made {
        let edits: Vec<Edit<'_>> = edits.iter().map(|(path, text)| (*path, Some(text.as_str()))).collect();
        fixture = fixture.patch(subject, &edits);
    }
    fixture
        .advance("same", &[("src/one.c", Some(&same))])
        .advance("first half", &[("src/two.c", Some(&text(&["a", "b", "y", "c", "d"])))])
        .advance("second half", &[("src/two.c", Some(&text(&["a", "b2", "y", "c", "z", "d"])))])
        .advance("squash of much", &[("src/three.c", Some(&part)), ("src/five.c", Some(&base))])
}

#[test]
fn what_landed_is_found_whole_in_two_commits_or_in_part() {
    let fixture = backports();
    insta::assert_snapshot!(without_ids(&fixture, &render::table(&report(&fixture))), @r"
    fork: 4 patches on <up-0>, against <up-4>, 4 commits later

      #  state          patch           age  size    do
      1  landed         lands as it is  0 d  +4 -0   drop
           upstream <up-1> “same” makes the same change
      2  landed         lands in two    0 d  +8 -0   drop
           upstream <up-3> and 1 more hold 100 % of its lines
      3  partly landed  lands in part   0 d  +24 -0  split
           upstream <up-4> “squash of much” holds 50 % of its lines; 6 lines are left
      4  needed         is fork's own   0 d  +4 -0   upstream
           alone it fits upstream's newest; nothing like it is there

    4 patches and 40 lines; 2 patches and 10 lines remain when all this is done
    age: from a patch's date to the date of the commit that it is judged against
    whole stack without a conflict up to <up-4> (upstream's newest itself)
    ");
}

#[test]
fn one_patchs_whole_case_and_markdown_hold_the_same_facts() {
    let fixture = backports();
    let report = report_with(
        &fixture,
        "[[patch]]\npatch = \"lands in part\"\nprobe = [\"make\", \"check\"]\nany = [{ path = \"src/five.c\" }, \
         { pull-request = 7 }]\n[retirement]\nall = [{ log = \"half\" }]\n",
    );
    let case = render::explanation(&report, "in part").unwrap();
    insta::assert_snapshot!(without_ids(&fixture, &case), @r"
    fork patch 3: lands in part
      partly landed, drop: its retirement condition holds: path src/five.c is there

      from           commit <own-8>, A Person, 2023-11-14, key 567d5d2004b3
      size           +24 -0 in 2 files: src
      fate           merged in the stack, merged alone
      landed         <up-4> “squash of much”: 50 % of its lines
      not upstream   src/own.c: 6 lines
      alive          100 % of its added lines at the stack's head
      cost           upstream changed 12 lines in its files since the base; no sync is recorded
      can go when    any of: true (1 true, 0 false, 1 unknown)
                     · path src/five.c is there: true (<up-4> has it)
                     · pull request 7 is merged: unknown (no state is recorded in results.json, and no
                     forge was asked: set REGRAFT_FORGE_TOKEN)
      probe          make check: no result is recorded
    ");
    insta::assert_snapshot!(without_ids(&fixture, &render::markdown(&report)), @r"
    ## fork: 4 patches on <up-0>, against <up-4>, 4 commits later

    | # | state | patch | age | size | do |
    |---:|---|---|---:|---:|---|
    | 1 | landed | lands as it is | 0 d | +4 -0 | drop |
    | 2 | landed | lands in two | 0 d | +8 -0 | drop |
    | 3 | partly landed | lands in part | 0 d | +24 -0 | drop |
    | 4 | needed | is fork's own | 0 d | +4 -0 | upstream |

    4 patches and 40 lines; 1 patch and 4 lines remain when all this is done

    age: from a patch's date to the date of the commit that it is judged against

    whole stack without a conflict up to <up-4> (upstream's newest itself)

    - all of: true (1 true, 0 false, 0 unknown)

    - · a message or release note since the base mentions “half”: true (<up-2> “first half”)

    ### 1 lands as it is

    **drop**: upstream <up-1> “same” makes the same change

    - from: commit <own-6>, A Person, 2023-11-14, key 0b80af0bcabd
    - size: +4 -0 in 1 file: src
    - fate: absorbed in the stack, absorbed alone
    - landed: <up-1> “same”: the same change
    - alive: 100 % of its added lines at the stack's head
    - cost: upstream changed 4 lines in its files since the base; no sync is recorded

    ### 2 lands in two

    **drop**: upstream <up-3> and 1 more hold 100 % of its lines

    - from: commit <own-7>, A Person, 2023-11-14, key 49a3d600c735
    - size: +8 -0 in 1 file: src
    - fate: merged in the stack, merged alone
    - landed: <up-3> “second half”: 50 % of its lines, in part
    - landed: <up-2> “first half”: 50 % of its lines, in part
    - alive: 100 % of its added lines at the stack's head
    - cost: upstream changed 12 lines in its files since the base; no sync is recorded

    ### 3 lands in part

    **drop**: its retirement condition holds: path src/five.c is there

    - from: commit <own-8>, A Person, 2023-11-14, key 567d5d2004b3
    - size: +24 -0 in 2 files: src
    - fate: merged in the stack, merged alone
    - landed: <up-4> “squash of much”: 50 % of its lines
    - not upstream: src/own.c: 6 lines
    - alive: 100 % of its added lines at the stack's head
    - cost: upstream changed 12 lines in its files since the base; no sync is recorded
    - can go when: any of: true (1 true, 0 false, 1 unknown)
    - can go when: · path src/five.c is there: true (<up-4> has it)
    - can go when: · pull request 7 is merged: unknown (no state is recorded in results.json, and no forge was asked: set REGRAFT\_FORGE\_TOKEN)
    - probe: make check: no result is recorded

    ### 4 is fork's own

    **upstream**: alone it fits upstream's newest; nothing like it is there

    - from: commit <own-9>, A Person, 2023-11-14, key e4ead402cf07
    - size: +4 -0 in 1 file: src
    - fate: applied in the stack, applied alone
    - alive: 100 % of its added lines at the stack's head
    - cost: upstream changed 0 lines in its files since the base; no sync is recorded
    - for upstream: branch upstream/0004-is-fork-s-own, 54ff54e08
    ");
}

#[test]
fn names_that_upstream_coined_too_supersede_whatever_their_case_but_words_do_not() {
    let base = "func load(name: String) {\n    print(name)\n}\n";
    let own = format!("{base}// toFp4 is none\nfunc fromFp8(encode: Int) {{\n    cursor(encode)\n}}\n");
    let theirs = "func fromFP8(value: Int) {\n    // toFp4\n    cursor(encode)\n}\n";
    let fixture = ForkFixture::new(&[("Source/One.swift", base)])
        .patch("converts", &[("Source/One.swift", Some(&own))])
        .advance("converts too", &[("Source/Two.swift", Some(theirs))]);
    let report = report(&fixture);
    let by = &report.patches[0].superseded_by;
    assert_eq!(
        (by.len(), by[0].identifiers.join(" "), by[0].subject.as_str()),
        (1, "fromFp8".to_owned(), "converts too")
    );
    assert_eq!(report.patches[0].state, PatchState::Superseded);
}

#[test]
fn repairs_pairs_and_dead_patches_are_known_inside_the_stack() {
    let text = |lines: &str| lines.replace(' ', "\n") + "\n";
    let [base, one, two, three] =
        ["a b c d e f", "a b x y z c d e f", "a b x Y z c d e f", "a b x Y z c d e F"].map(text);
    let fixture = ForkFixture::new(&[("f", &base), ("g", "1\n")])
        .patch("adds", &[("f", Some(&one))])
        .patch("repairs", &[("f", Some(&two))])
        .patch("changes the end", &[("f", Some(&three))])
        .patch("changes it back", &[("f", Some(&two))])
        .advance("elsewhere", &[("g", Some("2\n"))]);
    let report = report(&fixture);
    let told: Vec<String> = report
        .patches
        .iter()
        .map(|patch| {
            format!(
                "{:?} {:?} fixup of {:?}, undoes {:?}, alive {:?}",
                patch.state, patch.recommendation, patch.fixup_of, patch.undoes, patch.liveness
            )
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    Needed Keep fixup of None, undoes None, alive Some(0.667)
    Needed Squash fixup of Some(1), undoes None, alive Some(1.0)
    Dead Drop fixup of None, undoes None, alive Some(0.0)
    Dead Drop fixup of Some(3), undoes Some(3), alive Some(1.0)
    ");
}

#[test]
fn the_three_things_that_cannot_be_known_are_said() {
    // No common history.
    let mut fixture = ForkFixture::new(&[("a", "1\n"), ("b", "2\n")]);
    let tree = fixture.store.commit(fixture.base).unwrap().tree;
    let person = crate::tools::git::store::Person {
        name: "B".to_owned(),
        email: "b@example.org".to_owned(),
        time_s: 1,
        offset_min: 0,
    };
    let import = fixture.store.write_commit(tree, &[], &person, "import\n").unwrap();
    fixture.name("refs/tags/v1.0", fixture.base);
    let own = fixture.commit(&[import], "own", &[("a", Some("own\n"))]);
    fixture.fork = vec![import, own];
    let fixture = fixture.advance("later", &[("a", Some("3\n"))]);
    let unrelated = render::table(&report(&fixture)).replace(&import.short(), "<import>");
    insta::assert_snapshot!(without_ids(&fixture, &unrelated), @r"
    fork: 0 patches on nothing shared, against <up-1>, 0 commits later
    not known: what the fork changed, commit by commit, and so whether any of it landed, was superseded,
      or undoes upstream's work (the fork's head and upstream's branch share no commit; its first commit
      <import> is closest to v1.0 (2 of 2 files are the same): state that commit as [base] in
      fork.toml, with the fork's changes as patch files)
    ");

    // A squashed history: upstream's commits and an own change in one.
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let paths: Vec<String> = names.iter().map(|name| format!("src/{name}.c")).collect();
    let before: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "int first;\n")).collect();
    let after: Vec<String> = names.iter().map(|name| functions(&[name, "shared"])).collect();
    let own = functions(&["own", "work"]);
    let mut squashed: Vec<Edit<'_>> =
        paths.iter().zip(&after).map(|(path, text)| (path.as_str(), Some(text.as_str()))).collect();
    squashed.push(("src/own.c", Some(&own)));
    let mut fixture = ForkFixture::new(&before).patch("update", &squashed);
    for (path, text) in paths.iter().zip(&after) {
        // One more line, so that no commit's change is taken over to the letter.
        let text = format!("{text}int last;\n");
        fixture = fixture.advance(&format!("changes {path}"), &[(path, Some(&text))]);
    }
    let squashed = report(&fixture);
    insta::assert_snapshot!(without_ids(&fixture, &render::table(&squashed)), @r"
    fork: 1 patch on <up-0>, against <up-8>, 8 commits later

      #  state          patch   age  size    do
      1  partly landed  update  0 d  +72 -8  split
           upstream <up-8> and 7 more hold 83 % of its lines; 8 lines are left

    1 patch and 80 lines; 1 patch and 8 lines remain when all this is done
    age: from a patch's date to the date of the commit that it is judged against
    whole stack without a conflict up to <up-0> (the base)
    not known: which lines of patch 1 are the fork's own work (it holds lines of 8 upstream commits
      (<up-8> most of all) beside 8 that upstream does not have: a squashed history has no commits to
      tell them apart by, so take the fork's newer commits one by one)
    ");

    // Only the base's files.
    let unknown = limits::unknowns(Depth::OnlyFiles, &[]);
    let told: Vec<String> =
        unknown.iter().map(|unknown| format!("{}: {}", unknown.what, unknown.why)).collect();
    insta::assert_snapshot!(told.join("\n"), @r"whether anything landed, was superseded, or undoes upstream's work: only the base's files are at hand and no commit of upstream's: name a newer target with --onto");
}

#[test]
fn what_only_a_vendored_copy_has_is_nothing_for_upstream() {
    let mut fixture = ForkFixture::new(&[("a", "1\n2\n3\n4\n"), ("b", "1\n2\n"), ("c", "1\n")]);
    let carrier = fixture.commit(
        &[fixture.base],
        "carrier",
        &[
            ("vendor/n/a", Some("1\n2\n3\n4\nfour\n")),
            ("vendor/n/b", Some("1\n2\n")),
            ("vendor/n/c", Some("1\n")),
            ("vendor/n/own.patch", Some("glue\n")),
        ],
    );
    let fixture = fixture.advance("elsewhere", &[("b", Some("2\n"))]);
    fixture.name("refs/heads/main", fixture.onto());
    fixture.name("refs/heads/carrier", carrier);
    let (upstream, _) = FORK.split_once("[stack]").unwrap();
    let text = format!(
        "{upstream}[stack]\nkind = \"vendored\"\nrepository = \"https://example.org/owner/name\"\n\
         branch = \"carrier\"\nfolder = \"vendor/n\"\npatches = \"per-file\"\n"
    );
    let root = tempfile::tempdir().unwrap();
    let spec = parse_fork("fork", "fork.toml", &text).unwrap();
    let source = Source::Mirrors(fixture.mirror_root().to_owned());
    let report = report_fork(root.path(), spec, &Onto::Latest, &source, &Silent).unwrap();
    let told: Vec<String> = report
        .patches
        .iter()
        .map(|patch| format!("{}: {:?}: {}", patch.forecast.subject, patch.recommendation, patch.reason))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    drift of a: Upstream: alone it fits upstream's newest; nothing like it is there
    drift of own.patch: Keep: nothing like it is upstream; it only adds files that upstream does not have: the copy's own
    ");
}

#[test]
fn texts_fit_their_width_and_obey_no_subject() {
    let subject = format!("\u{1b}[31m<script>|`@all` {}", "many words ".repeat(20));
    let fixture = ForkFixture::new(&[("f", "1\n"), ("g", "1\n")])
        .patch(&subject, &[("f", Some("2\n"))])
        .advance("elsewhere", &[("g", Some("2\n"))]);
    let report = report(&fixture);
    for text in [render::table(&report), render::explanation(&report, "1").unwrap()] {
        let fits = text.lines().all(|line| line.chars().count() <= 100 && !line.contains('\u{1b}'));
        assert!(fits, "{text}");
    }
    let markdown = render::markdown(&report);
    assert!(
        !markdown.contains("<script>") && !markdown.contains('\u{1b}') && markdown.contains("\\|\\`\\@all")
    );
    assert_eq!(render::explanation(&report, "no such patch"), None);
}

#[test]
fn every_form_of_a_report_is_as_it_was_read() {
    let hostile = "\u{1b}[31m<script>alert(1)</script> \"&' onload=x";
    let fixture = ForkFixture::new(&[("f", "1\n2\n3\n"), ("g", "1\n")])
        .patch(hostile, &[("f", Some("1\n2\nours\n"))])
        .patch("Build on it", &[("f", Some("1\n2\nours and more\n"))])
        .patch("Stand alone", &[("new", Some("n\n"))])
        .advance("Elsewhere </title><b>", &[("g", Some("2\n"))])
        .advance("Meet <i>it</i>", &[("f", Some("1\n2\ntheirs\n"))])
        .advance("More", &[("g", Some("3\n"))]);
    let report = report(&fixture);
    let page = page::html(std::slice::from_ref(&report)).unwrap();
    for active in ["<script", "<b>", "<i>", "\u{1b}", "://", "src=", "url(", "@import"] {
        assert!(!page.contains(active), "{active} in {page}");
    }
    assert_eq!(page.matches("<svg").count(), 2, "a chart and a graph");
    assert_eq!(page, page::html(std::slice::from_ref(&report)).unwrap());
    insta::assert_snapshot!("page", page);
    insta::assert_snapshot!("table", render::table(&report));
    insta::assert_snapshot!("explanation", render::explanation(&report, "1").unwrap());
    insta::assert_snapshot!("markdown", render::markdown(&report));
    insta::assert_snapshot!("document", serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn the_document_has_the_agreed_keys() {
    let document = serde_json::to_value(report(&backports())).unwrap();
    let has = |value: &serde_json::Value, keys: &[&str]| {
        let there: Vec<&String> = value.as_object().unwrap().keys().collect();
        keys.iter()
            .for_each(|key| assert!(there.iter().any(|other| other == key), "{key} is not in {there:?}"));
    };
    has(&document, &["name", "base", "onto", "frontier", "patches", "residue", "unknown", "sections"]);
    let patch = &document["patches"][2];
    has(
        patch,
        &[
            "number",
            "subject",
            "commit",
            "fate",
            "conflicts",
            "depends_on",
            "alone",
            "state",
            "recommendation",
            "reason",
            "landed",
            "superseded_by",
            "reverts",
            "fixup_of",
            "liveness",
            "retirement",
            "cost",
        ],
    );
    has(&patch["landed"][0], &["commit", "subject", "how", "share"]);
    has(&patch["cost"], &["past_conflicts", "churn_lines"]);
    assert_eq!((&patch["state"], &patch["recommendation"]), (&"partly-landed".into(), &"split".into()));
    assert_eq!(patch["landed"][0]["how"], "content");
}
