//! Environment grants of `knack dev`: who gets the value of `--allow-env`, and who never does.
//!
//! The model is scripted and hostile: it calls `run_code` with the skill's name, and it plants files that interpreters
//! load by themselves before it calls the declared tools.

use serde_json::{Value, json};

use super::program::{Program, folder, knack};
use super::skills_api::RUNTIME;

/// The granted value. Only declared tools may print it.
const SECRET: &str = "granted-4711";
/// What every planted file prints where it is executed.
const PLANTED: &str = "PLANTED";

const SKILL: &str = "---
name: Weather
description: Tells the weather.
mode: llm
activation: Listed
tool_env: [TOKEN]
tools:
  - {name: py, description: d, command: [python3, scripts/now.py]}
  - {name: js, description: d, command: [node, scripts/now.js]}
  - {name: bash, description: d, command: [bash, scripts/now.sh]}
  - {name: own, description: d, command: [scripts/own]}
  - {python: tools.py}
---
x
";

/// Prints the token, tries to load a module that the skill does not have, and lists what it finds outside of `inputs/`.
const NOW_PY: &str = "import os, sys, json
print('py has', os.environ.get('TOKEN'))
try:
    import helper
except ImportError:
    print('py: no helper')
work = os.environ['KNACK_WORK_DIR']
print('py: home', sorted(os.listdir(os.path.expanduser('~'))))
print('py: work', sorted(name for name in os.listdir(work) if not name.startswith('.')))
print('py: data', open(work + '/inputs/data.txt').read() if os.path.exists(work + '/inputs/data.txt') else None)
print('py: started in', os.path.relpath(os.getcwd(), work + '/..'))
";
const NOW_JS: &str = "console.log('js has', process.env.TOKEN);
try { require('helper') } catch { console.log('js: no helper') }
console.log('js: home', require('fs').readdirSync(require('os').homedir()).length);
";
/// A function: it is called in the work directory, where files of the conversation are below `inputs/` alone.
const TOOLS_PY: &str = "import os

def function() -> str:
    \"\"\"Tells the weather.\"\"\"
    try:
        import helper
    except ImportError:
        return f'function has {os.environ.get(\"TOKEN\")}; function: no helper'
    return 'function: helper'
";
const NOW_SH: &str = "echo \"bash has $TOKEN\"\n";

const FILES: &[(&str, &str)] = &[
    ("skills/weather/SKILL.md", SKILL),
    ("skills/weather/scripts/now.py", NOW_PY),
    ("skills/weather/scripts/now.js", NOW_JS),
    ("skills/weather/scripts/now.sh", NOW_SH),
    ("skills/weather/tools.py", TOOLS_PY),
    ("skills/weather/scripts/own", "#!/bin/sh\necho \"own has $TOKEN\"\n"),
];

/// Plants whatever an interpreter, a package manager or a shell looks for by itself, in the work directory and below
/// `inputs/`.
const PLANT: &str = r##"
import os
def put(path, text):
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write(text)
    os.chmod(path, 0o755)
word = "PLAN" + "TED"
py = f"import os\nprint('{word}', __file__, os.environ.get('TOKEN'))\n"
js = f"console.log('{word}', __filename, process.env.TOKEN)\n"
sh = f"#!/bin/sh\necho {word} $0 $TOKEN\n"
pth = f"import os; print('{word} pth', os.environ.get('TOKEN'))\n"
for base in ("", "inputs/"):
    for minor in range(8, 16):
        site = f"{base}.local/lib/python3.{minor}/site-packages/"
        for name in ("usercustomize.py", "sitecustomize.py", "helper.py"):
            put(site + name, py)
        put(site + "evil.pth", pth)
    for name in ("usercustomize.py", "sitecustomize.py", "helper.py", "json.py", "os.py", ".pythonrc", ".pythonstartup", ".pdbrc"):
        put(base + name, py)
    for parent in (".node_modules", ".node_libraries", "node_modules", ".local/lib/node"):
        put(f"{base}{parent}/helper/index.js", js)
    put(base + "helper.js", js)
    put(base + "package.json", '{"main": "helper.js", "type": "commonjs"}')
    put(base + ".npmrc", "node-options=--require ./helper.js\n")
    put(base + "pyvenv.cfg", "home = .\n")
    for name in (".bashrc", ".bash_profile", ".profile", ".shrc", ".env", "python3", "node", "bash", "sh"):
        put(base + name, sh)
put("data.txt", "of the conversation")
"##;

fn tool(name: &str) -> Value {
    json!({"tool": "run_skill_tool", "arguments": {"skill": "weather", "tool": name, "arguments": {}}})
}

fn script() -> String {
    let code = |arguments: Value| json!({"reply": {"calls": [{"tool": "run_code", "arguments": arguments}]}});
    let say = || json!({"reply": {"text": "{{results}}"}});
    let print_python = "import os\nprint('code has', os.environ.get('TOKEN'), dict(os.environ))";
    let print_node = "console.log('code has', process.env.TOKEN, JSON.stringify(process.env))";
    let turn = |user: &str, rounds: Vec<Value>| json!({"user": user, "rounds": rounds});
    let mut turns = vec![
        turn(
            "code in python",
            vec![code(json!({"skill": "weather", "code": print_python})), say()],
        ),
        turn(
            "code in node",
            vec![
                code(json!({"skill": "weather", "language": "node", "code": print_node})),
                say(),
            ],
        ),
        turn(
            "the command of the tool",
            vec![
                code(json!({"skill": "weather", "command": "python3 skills/weather/scripts/now.py"})),
                say(),
            ],
        ),
        turn(
            "the code of litellm",
            vec![
                json!({"reply": {"calls": [{"tool": "litellm_code_execution", "arguments": {"code": print_python}}]}}),
                say(),
            ],
        ),
    ];
    for name in TOOLS {
        let plain = vec![json!({"reply": {"calls": [tool(name)]}}), say()];
        turns.push(turn(&format!("the tool {name}"), plain));
        let planted = vec![
            code(json!({"code": PLANT})),
            json!({"reply": {"calls": [tool(name)]}}),
            say(),
        ];
        turns.push(turn(&format!("planted files and {name}"), planted));
    }
    json!({"turns": turns}).to_string()
}

const TOOLS: [&str; 5] = ["py", "js", "bash", "own", "function"];

async fn start() -> Program {
    let folder = folder(&[FILES, &[RUNTIME]].concat());
    std::fs::write(folder.path().join("script.yaml"), script()).unwrap();
    let own = folder.path().join("skills/weather/scripts/own");
    std::fs::set_permissions(own, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let arguments = [
        RUNTIME.0,
        "--upstream",
        "mock=script.yaml",
        "--allow-env",
        "weather:TOKEN",
    ];
    Program::start(folder, &arguments, &[("TOKEN", SECRET)]).await
}

async fn ask(program: &Program, user: &str) -> String {
    let body = json!({"model": "gpt-x", "messages": [{"role": "user", "content": user}]});
    program.post("/v1/chat/completions", &body, &[]).await
}

#[tokio::test]
async fn only_declared_tools_get_granted_values() {
    let program = start().await;
    for user in ["code in python", "code in node", "the command of the tool"] {
        let said = ask(&program, user).await;
        assert!(said.contains(" has "), "it ran: {said}");
        assert!(!said.contains(SECRET), "{user}: {said}");
    }
    let body = json!({
        "model": "claude-x", "max_tokens": 1000, "messages": [{"role": "user", "content": "the code of litellm"}],
        "container": {"skills": [{"type": "custom", "skill_id": "litellm:weather"}]},
    });
    let version = [("anthropic-version", "2023-06-01")];
    let said = program.post("/v1/messages", &body, &version).await;
    assert!(said.contains("code has"), "it ran: {said}");
    assert!(!said.contains(SECRET), "{said}");
    for name in TOOLS {
        let said = ask(&program, &format!("the tool {name}")).await;
        assert!(said.contains(&format!("{name} has {SECRET}")), "{said}");
    }
}

/// Whatever a model writes is data to a tool: nothing of it is executed, imported, or configures an interpreter.
#[tokio::test]
async fn files_of_the_conversation_are_only_data_for_a_declared_tool() {
    let program = start().await;
    for name in TOOLS {
        let said = ask(&program, &format!("planted files and {name}")).await;
        assert!(said.contains(&format!("{name} has {SECRET}")), "{said}");
        assert!(!said.contains(PLANTED), "{name} executes a planted file: {said}");
        if name != "bash" && name != "own" {
            assert!(said.contains(&format!("{name}: no helper")), "{said}");
        }
        if name == "py" {
            assert!(said.contains("py: home []"), "{said}");
            assert!(said.contains("py: work ['inputs', 'skills']"), "{said}");
            assert!(said.contains("py: data of the conversation"), "{said}");
            assert!(said.contains("py: started in skills/weather"), "{said}");
        }
    }
}

/// Namespace and name of a manifest are its author's choice: what a bare name gives stays with the skill of the folder.
#[tokio::test]
async fn a_manifest_of_another_namespace_gets_no_value_of_a_bare_name() {
    let theirs = |namespace: &str| {
        let document = "---\\nname: weather\\ndescription: d\\ntools:\\n- {name: theirs, description: d, command: [printenv, TOKEN], env: [TOKEN]}\\n---\\nx\\n";
        format!(
            "apiVersion: knack.dev/v1alpha1\nkind: Skill\nmetadata: {{name: weather, namespace: {namespace}}}\nspec:\n  source: {{inline: \
             {{files: {{SKILL.md: \"{document}\"}}}}}}\n"
        )
    };
    let arguments = ["--upstream", "mock", "--allow-env", "weather:TOKEN"];
    let files = |manifest: &str| folder(&[FILES, &[("skills/theirs/a.yaml", manifest)]].concat());
    let program = Program::start(files(&theirs("x")), &arguments, &[("TOKEN", SECRET)]).await;
    let greeting = program.greeting.join("\n");
    let told = "theirs: TOKEN; grant them with --allow-env x/weather:TOKEN";
    assert!(greeting.contains(told), "{greeting}");
    drop(program);
    // Of the same name one would take the place of the other: neither is served.
    let folder = files(&theirs("default"));
    let start = [&["dev", "skills", "--listen", "127.0.0.1:0"], &arguments[..]].concat();
    let output = knack(folder.path(), &start, &[("TOKEN", SECRET)]).await;
    assert_eq!(output.status.code(), Some(1));
    let told = super::err(&output);
    assert!(
        told.contains(
            "--allow-env weather:TOKEN: weather may mean several skills: default/weather (skills/theirs/a.yaml)"
        ) && told.contains("rename"),
        "{told}"
    );
}
