//! Runs with an environment: what they can import, and what they cannot do to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use knack_execution::environments::{EnvironmentState, Environments};
use knack_execution::local::{LocalExecutor, LocalSettings};
use knack_execution::{
    ExecutionError, ExecutionRequest, ExecutionResult, Executor, Exit, Program, SkillMount, StartKind,
};
use knack_skill::model::{Skill, SkillRef};
use knack_skill::problem::Profile;
use knack_skill::{LoadInput, SpecOverrides};
use tokio_util::sync::CancellationToken;

use super::index::wheel;
use super::runner::{python, settings};
use super::skip::skip;
use super::{BuilderFixture, skill_files};

fn skill(name: &str) -> Arc<Skill> {
    let document = format!("---\nname: {name}\ndescription: d\n---\nBody");
    let loaded = knack_skill::load(LoadInput {
        id: SkillRef {
            namespace: "default".into(),
            name: name.into(),
        },
        files: skill_files(&[
            ("SKILL.md", &document),
            ("scripts/tool.py", "import good\nprint('script', good.VALUE)\n"),
        ]),
        overrides: SpecOverrides::default(),
        profile: Profile::Load,
    });
    Arc::new(loaded.skill.unwrap())
}

struct Bench {
    executor: LocalExecutor,
    environments: Environments,
    fixture: BuilderFixture,
    root: String,
}

async fn bench(skill: &Skill, warm: usize) -> Bench {
    let (fixture, _index) = BuilderFixture::with(vec![
        wheel(
            "good",
            "1.0",
            "",
            &[
                (
                    "good/__init__.py",
                    "VALUE = 7\ndef main():\n    import sys\n    print('tool', VALUE, sys.argv[1:])\n",
                ),
                ("good/data.txt", "data"),
                (
                    "good-1.0.dist-info/entry_points.txt",
                    "[console_scripts]\ngood-tool = good:main\n",
                ),
            ],
        ),
        wheel("space_one", "1.0", "", &[("space/one.py", "ONE = 1\n")]),
        wheel("space_two", "1.0", "", &[("space/two.py", "TWO = 2\n")]),
        wheel(
            "writer",
            "1.0",
            "",
            &[(
                "writer.py",
                "import os\nopen(os.path.join(os.path.dirname(__file__), 'left'), 'w')\n",
            )],
        ),
    ])
    .await;
    let built = fixture
        .build(&[("requirements.txt", "good\nspace-one\nspace-two\nwriter")])
        .await
        .unwrap();
    let environments = Environments::default();
    let root = built.environment.root.display().to_string();
    environments.set(&skill.digest, EnvironmentState::Ready(built.environment));
    let settings = LocalSettings {
        warm,
        environments: environments.clone(),
        ..settings()
    };
    let executor = LocalExecutor::open(settings)
        .await
        .unwrap_or_else(|missing| panic!("{missing}"));
    Bench {
        executor,
        environments,
        fixture,
        root,
    }
}

fn of(skill: &Arc<Skill>, mut request: ExecutionRequest) -> ExecutionRequest {
    request.skill = Some(skill.id.clone());
    request.mounts = vec![SkillMount {
        name: skill.id.name.clone(),
        skill: Arc::clone(skill),
    }];
    request
}

impl Bench {
    async fn run(&self, request: ExecutionRequest) -> Result<Arc<ExecutionResult>, ExecutionError> {
        self.executor.execute(request, CancellationToken::new()).await
    }

    async fn said(&self, request: ExecutionRequest) -> String {
        let result = self.run(request).await.unwrap();
        assert_eq!(result.exit, Exit::Code(0), "{}", result.stderr.text());
        result.stdout.text().trim().to_owned()
    }
}

fn command(call: &str, argv: &[&str]) -> ExecutionRequest {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    ExecutionRequest {
        program: Program::Command { argv },
        ..python(call, "")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_skill_have_its_packages_and_no_other_run_has() {
    let (with, without) = (skill("with"), skill("without"));
    let bench = bench(&with, 0).await;
    let source = "import good, space.one, space.two, os\n\
                  print(good.VALUE + space.one.ONE + space.two.TWO, open(os.path.join(os.path.dirname(good.__file__), 'data.txt')).read())";
    assert_eq!(bench.said(of(&with, python("code", source))).await, "10 data");
    assert_eq!(
        bench
            .said(of(
                &with,
                command("script", &["python3", "skills/with/scripts/tool.py"])
            ))
            .await,
        "script 7"
    );
    assert_eq!(
        bench.said(of(&with, command("console", &["good-tool", "x"]))).await,
        "tool 7 ['x']"
    );
    // A child that is given HOME and PATH alone, as mcp's client starts servers.
    let child = "import os, subprocess\n\
                 env = {name: os.environ[name] for name in ('HOME', 'PATH')}\n\
                 print(subprocess.run(['python', '-c', 'import good; print(good.VALUE)'], env=env, capture_output=True, text=True))";
    assert!(
        bench
            .said(of(&with, python("child", child)))
            .await
            .contains("stdout='7\\n'")
    );
    for (call, mut request) in [
        ("other", of(&without, python("other", "import good"))),
        ("none", of(&with, python("none", "import good"))),
    ] {
        if call == "none" {
            request.skill = None;
        }
        let result = bench.run(request).await.unwrap();
        assert_eq!(result.exit, Exit::Code(1), "{call}");
        assert!(
            result.stderr.text().contains("No module named 'good'"),
            "{call}: {}",
            result.stderr.text()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_can_be_read_and_nothing_else() {
    let skill = skill("with");
    let bench = bench(&skill, 0).await;
    let home = format!("{:?}", bench.root);
    let attacks: BTreeMap<&str, String> = BTreeMap::from([
        ("write", format!("open({home} + '/lib/x', 'w')")),
        ("overwrite", "import good; open(good.__file__, 'a')".to_owned()),
        ("package writes", "import writer".to_owned()),
        ("remove", "import good, os; os.unlink(good.__file__)".to_owned()),
        (
            "rename",
            format!("import os; os.rename({home} + '/bin', {home} + '/other')"),
        ),
        ("make", format!("import os; os.mkdir({home} + '/new')")),
        ("link", format!("import os; os.symlink('/etc', {home} + '/link')")),
        (
            "store listed",
            format!("import os; os.listdir(os.path.dirname({home}))"),
        ),
        ("store read", format!("import os; open({home} + '.use').read()")),
        (
            "locks listed",
            format!("import os; os.listdir(os.path.dirname({home}) + '/locks')"),
        ),
    ]);
    for (name, source) in &attacks {
        let caught = format!(
            "try:\n    exec({source:?})\n    print('done')\nexcept OSError as error:\n    print(type(error).__name__)"
        );
        let said = bench.said(of(&skill, python(name, &caught))).await;
        assert!(matches!(said.as_str(), "PermissionError" | "OSError"), "{name}: {said}");
    }
    // The reverse: reading and listing within it works, so the paths above are right.
    let listed = format!("import os; print(sorted(os.listdir({home}))[0])");
    assert_eq!(bench.said(of(&skill, python("list", &listed))).await, "bin");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_modes_of_an_environment_cannot_be_changed() {
    // Where the kernel lets no namespace be made, only another user's files are safe from this.
    if !rustix::process::geteuid().is_root() {
        return skip("the_modes_of_an_environment_cannot_be_changed", "it needs root");
    }
    let skill = skill("with");
    let bench = bench(&skill, 0).await;
    let mode = "import good, os\ntry:\n    os.chmod(good.__file__, 0o777); print('done')\nexcept OSError:\n    print('refused')";
    assert_eq!(bench.said(of(&skill, python("chmod", mode))).await, "refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skill_whose_packages_are_not_there_is_not_run() {
    let skill = skill("with");
    let bench = bench(&skill, 0).await;
    bench.environments.set(
        &skill.digest,
        EnvironmentState::Refused("the packages are not there".into()),
    );
    let refused = bench.run(of(&skill, python("refused", "print(1)"))).await.unwrap_err();
    assert!(refused.to_string().contains("the packages are not there"), "{refused}");
    bench.environments.set(&skill.digest, EnvironmentState::Base);
    assert_eq!(bench.said(of(&skill, python("base", "print(1)"))).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_sandbox_has_the_environment_and_keeps_it_from_being_removed() {
    let skill = skill("with");
    let bench = bench(&skill, 1).await;
    let source = "import good, sys\nprint(good.VALUE, sys.prefix)";
    let expected = format!("7 {}", bench.root);
    let until = std::time::Instant::now() + std::time::Duration::from_mins(2);
    // The first use of an environment asks for warm sandboxes with it.
    for number in 0.. {
        let result = bench
            .run(of(&skill, python(&format!("run-{number}"), source)))
            .await
            .unwrap();
        assert_eq!(result.stdout.text().trim(), expected);
        if result.timings.start == StartKind::Warm {
            break;
        }
        assert!(std::time::Instant::now() < until, "no warm start with packages");
        tokio::task::yield_now().await;
    }
    bench.environments.set(&skill.digest, EnvironmentState::Base);
    let pruned = bench.fixture.store().prune(std::time::Duration::ZERO).unwrap();
    assert!(
        pruned.iter().all(|one| one.freed.is_none()),
        "a warm sandbox stands in it: {pruned:?}"
    );
}
