"""LiteLLM's proxy as the upstream of the gateway, and behind it Gemini and Bedrock, in formats that are not theirs.

The proxy runs with the configuration of docs/clients.md, each model of it at a scripted provider on loopback.
"""

import contextlib
import pathlib
import re
import tempfile

import yaml
from bedrock import ACCESS_KEY, converse
from chain import PROXY_KEY, knack, litellm_proxy
from checks import KEY, equal, run, tests_of
from talks import in_chat, in_messages, in_responses

HERE = pathlib.Path(__file__).parent
DOCUMENTED = HERE.parent.parent / "docs" / "clients.md"


def documented():
    """The configuration of the documentation."""
    blocks = re.findall(r"^```yaml\n(model_list:.*?)^```", DOCUMENTED.read_text(), re.S | re.M)
    equal(len(blocks), 1, "configurations in docs/clients.md")
    return yaml.safe_load(blocks[0])


def at(config, mock, plain, thinking):
    """LiteLLM, with each model at a provider of the tests; a model on Bedrock that thinks; and the formats without translation."""
    gemini, claude = (model["litellm_params"] for model in config["model_list"])
    gemini["api_base"] = f"{mock}/v1beta"
    claude["aws_bedrock_runtime_endpoint"] = plain
    config["model_list"] += [{"model_name": "thinking-on-bedrock", "litellm_params": {**claude, "aws_bedrock_runtime_endpoint": thinking}}]
    config["model_list"] += [
        {"model_name": name.split("/")[1], "litellm_params": {"model": name, "api_base": base, "api_key": KEY}}
        for name, base in (("openai/gpt-x", f"{mock}/v1"), ("anthropic/claude-x", mock))
    ]
    return config


def script(folder, name, *changes):
    """The script of the model. LiteLLM sends Gemini a result as JSON text: neither its lines nor its quotes are as they were."""
    text = (HERE / "script.yaml").read_text()
    for whole, part in (*changes, ("{line: sum=5}", "sum=5"), ("{line: sum=42}", "sum=42"), ("""result: '<skill name="adder"'""", "result: '<skill name='")):
        equal(whole in text, True, whole)
        text = text.replace(whole, part)
    path = pathlib.Path(folder) / name
    path.write_text(text)
    return path


class Chain:
    """Started by the first test that needs it: a proxy takes a minute."""

    def __init__(self):
        self.running = contextlib.ExitStack()
        self.gateway = self.bedrock = self.thinking = None

    def start(self):
        if self.gateway:
            return
        enter = self.running.enter_context
        folder = enter(tempfile.TemporaryDirectory())
        mock = enter(knack("mock", "--script", script(folder, "thinking.yaml")))
        plain = enter(knack("mock", "--script", script(folder, "plain.yaml", ("          thinking: One skill, one tool of the app.\n", ""))))
        self.bedrock, self.thinking = enter(converse(plain, KEY)), enter(converse(mock, KEY))
        secrets = {"GEMINI_API_KEY": KEY, "LITELLM_MASTER_KEY": PROXY_KEY, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": "not-a-secret"}
        proxy = enter(litellm_proxy(at(documented(), mock, self.bedrock.url, self.thinking.url), **secrets))
        self.gateway = enter(knack("dev", HERE / "skills", "--upstream", proxy, "--files-dir", folder))


CHAIN = Chain()


def test_chat_completions_reach_every_provider():
    CHAIN.start()
    for model in ("gpt-x", "claude-x", "gemini-2.5-flash", "claude-on-bedrock", "thinking-on-bedrock"):
        in_chat(CHAIN.gateway, model)


def test_messages_reach_gemini_and_bedrock():
    CHAIN.start()
    for model in ("gemini-2.5-flash", "claude-on-bedrock"):
        in_messages(CHAIN.gateway, model)
    # In a stream, LiteLLM sends the first piece of the thinking twice, and no provider takes its signature back.
    in_messages(CHAIN.gateway, "thinking-on-bedrock", streams=(False,))


def test_responses_reach_gemini_and_bedrock():
    CHAIN.start()
    # In a stream, only LiteLLM's last event has the sealed thinking.
    for model in ("gemini-2.5-flash", "claude-on-bedrock", "thinking-on-bedrock"):
        in_responses(CHAIN.gateway, model)


def test_bedrock_got_the_skill_and_the_run_as_tools_of_converse():
    """Beside the script's checks, in the API's own words."""
    CHAIN.start()
    CHAIN.bedrock.requests.clear()
    in_chat(CHAIN.gateway, "claude-on-bedrock")
    first, second, third = CHAIN.bedrock.requests[:3]
    equal([text for block in first["system"] for text in ["# Skills"] if text in block["text"]], ["# Skills"], "system")
    names = [tool["toolSpec"]["name"] for tool in first["toolConfig"]["tools"]]
    equal([name for name in ("load_skill", "run_code") if name not in names], [], "tools")
    called = [block["toolUse"] for message in third["messages"] for block in message["content"] if "toolUse" in block]
    equal([call["name"] for call in called], ["load_skill", "run_code"], "calls")
    answered = [block["toolResult"] for message in third["messages"] for block in message["content"] if "toolResult" in block]
    equal([one["toolUseId"] for one in answered], [call["toolUseId"] for call in called], "results")
    equal("sum=5" in answered[1]["content"][0]["text"], True, answered)
    equal(len(second["messages"]), 3, "messages of the second round")
    equal([*CHAIN.bedrock.refusals, *CHAIN.thinking.refusals], [], "refusals of Converse")


if __name__ == "__main__":
    with CHAIN.running:
        run(tests_of(globals()), "LiteLLM upstreams")
