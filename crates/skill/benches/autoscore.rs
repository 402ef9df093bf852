//! Budgets of the pure core: scoring and compiling 10,000 skills.
//!
//! `cargo bench -p knack-skill --bench autoscore` prints `budget <name> <value> <limit> ok|over` and fails if one is over.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use knack_skill::autoscore::{AutoContext, AutoMessage, ScoreIndex, ScoredSkill};
use knack_skill::catalog::{Catalog, CatalogSettings, Node};
use knack_skill::fixture::{mk_empty_skill, mk_settings};
use knack_skill::model::{ActivationMode, Skill, SkillFile};

/// Skills in the catalog (issue: "scoring 10,000 skills against a 4 KB request").
const SKILLS: usize = 10_000;
/// Bytes of the request's text.
const REQUEST_BYTES: usize = 4_096;
/// Limits in milliseconds: the for scoring; a tenth of a second for the work on every change of a catalog.
const SCORE_LIMIT_MS: f64 = 1.0;
const COMPILE_LIMIT_MS: f64 = 100.0;

/// Words that skills and requests are made of, so that most of a request's words occur in many skills.
const WORDS: [&str; 48] = [
    "extract",
    "summary",
    "report",
    "invoice",
    "chart",
    "table",
    "convert",
    "image",
    "resize",
    "translate",
    "document",
    "search",
    "github",
    "issues",
    "review",
    "python",
    "deploy",
    "cluster",
    "network",
    "policy",
    "database",
    "query",
    "index",
    "backup",
    "schedule",
    "meeting",
    "calendar",
    "email",
    "draft",
    "style",
    "brand",
    "colour",
    "slides",
    "spreadsheet",
    "formula",
    "budget",
    "forecast",
    "weather",
    "travel",
    "booking",
    "music",
    "audio",
    "video",
    "caption",
    "legal",
    "contract",
    "clause",
    "risk",
];

/// A fixed sequence, so that every run measures the same catalog.
struct Sequence(u64);

impl Sequence {
    fn word(&mut self) -> &'static str {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let place = usize::try_from(self.0 >> 33).unwrap_or(0) % WORDS.len();
        WORDS.get(place).copied().unwrap_or("word")
    }

    fn text(&mut self, words: usize) -> String {
        (0..words).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }
}

fn skills(mode: ActivationMode) -> Vec<Arc<Skill>> {
    let mut sequence = Sequence(7);
    (0..SKILLS).map(|at| Arc::new(skill(at, mode, &mut sequence))).collect()
}

fn skill(at: usize, mode: ActivationMode, sequence: &mut Sequence) -> Skill {
    let name = format!("{}-{}-{at}", sequence.word(), sequence.word());
    let body = sequence.text(200);
    let file = |text: &str| SkillFile {
        bytes: text.as_bytes().into(),
        executable: false,
    };
    Skill {
        description: format!("{}. Unique{at} words{} here{}.", sequence.text(20), at % 997, at % 89),
        document: body.clone(),
        tags: (0..4).map(|_| sequence.word().to_owned()).collect(),
        files: [
            ("SKILL.md".to_owned(), file(&body)),
            ("run.py".to_owned(), file("pass")),
        ]
        .into(),
        body,
        ..mk_empty_skill(&name, mode)
    }
}

fn request() -> AutoContext {
    let mut sequence = Sequence(11);
    let mut text = String::new();
    while text.len() < REQUEST_BYTES {
        text.push_str(sequence.word());
        let number = text.len() % 613;
        text.extend([" w", &number.to_string(), " "]);
    }
    text.truncate(REQUEST_BYTES);
    AutoContext {
        messages: vec![AutoMessage {
            user: true,
            text: Some(text),
        }],
        ..AutoContext::default()
    }
}

fn settings() -> CatalogSettings {
    CatalogSettings {
        node: Node::Present,
        ..mk_settings()
    }
}

/// Median milliseconds of some runs.
fn median(runs: usize, mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1_000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times.get(runs / 2).copied().unwrap_or(f64::INFINITY)
}

fn main() -> ExitCode {
    let auto = skills(ActivationMode::Auto);
    let scored: Vec<ScoredSkill<'_>> = auto
        .iter()
        .map(|skill| ScoredSkill {
            name: &skill.id.name,
            description: &skill.description,
            tags: &skill.tags,
            install_count: skill.install_count,
        })
        .collect();
    let index = ScoreIndex::build(&scored);
    let request = request();
    let score = median(200, || {
        assert_eq!(std::hint::black_box(index.replay("openai", &request)).len(), 5);
    });
    let listed = skills(ActivationMode::Listed);
    let compile_listed = median(9, || {
        std::hint::black_box(Catalog::compile(listed.clone(), settings()));
    });
    let compile_auto = median(9, || {
        std::hint::black_box(Catalog::compile(auto.clone(), settings()));
    });
    let mut out = std::io::stdout().lock();
    let mut over = false;
    for (name, value, limit) in [
        ("autoscore_10k_ms", score, SCORE_LIMIT_MS),
        ("catalog_compile_10k_listed_ms", compile_listed, COMPILE_LIMIT_MS),
        ("catalog_compile_10k_auto_ms", compile_auto, COMPILE_LIMIT_MS),
    ] {
        let outcome = if value <= limit { "ok" } else { "over" };
        over |= value > limit;
        // A closed pipe is no reason to change the outcome.
        let _ = writeln!(out, "budget {name} {value:.3} {limit:.1} {outcome}");
    }
    if over { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
