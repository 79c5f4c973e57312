//! `chat` in a pipe, and what it prints for a conversation.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::carton_tools::{ok, scratch, write};

const TEMPLATE: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ '\\n' }}{% if add_generation_prompt %}<assistant>{% endif %}";

/// A carton `x.carton` of the README's small model, with a tokenizer whose tokens are characters.
fn model(root: &Path, template: &str) {
    test_support::tiny_llama::write(root).expect("a temporary folder");
    let vocab: serde_json::Map<String, serde_json::Value> =
        (0..256_u32).filter_map(|id| Some((char::from_u32(id)?.to_string(), json!(id)))).collect();
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null, "decoder": { "type": "Fuse" },
        "pre_tokenizer": { "type": "Split", "pattern": { "Regex": "(?s)." }, "behavior": "Isolated", "invert": false },
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "?" },
    });
    let mut args = vec!["consolidated.00.pth", "-q", "--force", "-o", "x.carton"];
    write(root.join("tokenizer.json"), tokenizer.to_string());
    args.extend(["--misc", "tokenizer.json"]);
    if !template.is_empty() {
        write(root.join("chat_template.jinja"), template);
        args.extend(["--misc", "chat_template.jinja"]);
    }
    ok(root, &args);
}

/// The status and the texts of a run with this standard input.
fn piped(root: &Path, args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torch2carton"));
    command.args(args).current_dir(root).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program was built for this test");
    // A program that ends at once closes the pipe.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_pipe_has_one_answer_on_each_line() {
    let scratch = scratch();
    let root = scratch.path();
    model(root, TEMPLATE);
    let ask = |args: &[&str], input| {
        let (status, stdout, stderr) = piped(root, &[&["chat", "x.carton", "-n", "8"], args].concat(), input);
        assert_eq!(status, Some(0), "{stderr}");
        (stdout, stderr)
    };
    let (first, notes) = ask(&[], "one\n");
    assert_eq!((first.lines().count(), notes.as_str()), (1, ""));
    let (both, _) = ask(&[], "one\n\ntwo");
    assert!(both.starts_with(&first) && both.lines().count() == 2, "{both}");
    // The history counts, until it is forgotten.
    let (again, _) = ask(&[], "one\n/clear\none\n/undo\none\n/retry\n");
    assert_eq!(again, first.repeat(4));
    let (_, notes) = ask(&[], "/nope\n/retry\n/exit\none\n");
    assert_eq!(notes, "note: there is no command /nope; /help lists them\nnote: there is no message yet\n");
    assert_eq!(ask(&["--temperature", "0"], "one\n").0, first);
    let random = ["--temperature", "2", "--seed", "7"];
    assert_eq!(ask(&random, "one\n").0, ask(&random, "one\n").0);
    assert_eq!(ask(&["--system", "x"], "one\n").0, ask(&[], "/system x\none\n").0);
}

#[test]
fn prompts_are_printed() {
    let scratch = scratch();
    let root = scratch.path();
    model(root, TEMPLATE);
    write(root.join("folder/chat_template.jinja"), TEMPLATE);
    let one = r#"[{"role": "user", "content": "Hi"}]"#;
    let ended = format!(r#"{{"messages": {one}, "add_generation_prompt": false, "temperature": 1}}"#);
    for file in ["x.carton", "folder"] {
        for (args, input, wanted) in [
            (&["--print-prompt"][..], one, "<user>Hi\n<assistant>"),
            (&["--print-prompt", "--system", "S"], one, "<system>S<user>Hi\n<assistant>"),
            (&["--print-prompt"], ended.as_str(), "<user>Hi\n"),
        ] {
            let (status, stdout, stderr) = piped(root, &[&["chat", file], args].concat(), input);
            assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), wanted, ""), "{file}");
        }
    }
}

#[test]
fn conversations_that_are_refused() {
    let scratch = scratch();
    let root = scratch.path();
    model(root, "");
    write(root.join("folder/chat_template.jinja"), "\n{{ raise_exception('no ' ~ messages|length) }}");
    write(
        root.join("loop/chat_template.jinja"),
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    );
    for (args, input, wanted) in [
        (
            &["x.carton"][..],
            "Hi\n",
            "error: the model has no chat template; `torch2carton run` continues a text\n",
        ),
        (
            &["folder", "--print-prompt"],
            "{",
            "error: standard input is no conversation in JSON: EOF while parsing an object at line 1 column 1\n",
        ),
        (&["folder", "--print-prompt"], "[]", "error: the conversation has no messages\n"),
        (
            &["folder", "--print-prompt"],
            r#"[{"role": "user"}]"#,
            "error: the chat template refuses the conversation: no 1 (line 2 of `chat_template.jinja`)\n",
        ),
        (
            &["loop", "--print-prompt"],
            r#"[{"role": "user"}]"#,
            "error: the chat template in `chat_template.jinja` needs more than 1000000 steps for this conversation, at line 1\n",
        ),
    ] {
        let (status, stdout, stderr) = piped(root, &[&["chat"], args].concat(), input);
        assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(1), "", wanted));
    }
}
