"""lm-eval's `local-completions`: the log-probabilities that it computes from answers of a server, and those of transformers."""

import json
from pathlib import Path

import torch
from line_server import serve

TASK = """task: tiny
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: answer
target_delimiter: ""
metric_list: [{{metric: acc}}]
metadata: {{version: 1.0}}
"""


def evaluate(url, folder, rows, batch):
    """For each choice of each row: its log-probability and if it is the most probable text."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    place = Path(folder) / "tasks"
    place.mkdir(exist_ok=True)
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "tiny.yaml").write_text(TASK.format(data=place / "rows.jsonl"))
    settings = {"base_url": f"http://{url}/v1/completions", "model": "m", "tokenizer": folder, "tokenized_requests": True, "max_retries": 1, "num_concurrent": 4}
    found = lm_eval.simple_evaluate(model="local-completions", model_args=settings, tasks=["tiny"], task_manager=TaskManager(include_path=str(place)),
                                    log_samples=True, bootstrap_iters=0, batch_size=batch)
    return [[list(pair) for pair in sample["filtered_resps"]] for sample in sorted(found["samples"]["tiny"], key=lambda sample: sample["doc_id"])]


def expected(folder, rows):
    """The same from the model's logits, in float32, with the texts divided as lm-eval does."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    scores = []
    for row in rows:
        scores.append([])
        for choice in row["choices"]:
            context = tokenizer.encode(row["question"], add_special_tokens=False)
            ids = tokenizer.encode(row["question"] + choice, add_special_tokens=False)
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
            places = range(len(context), len(ids))
            scores[-1].append([sum(float(logits[at - 1, ids[at]]) for at in places), all(int(logits[at - 1].argmax()) == ids[at] for at in places)])
    return scores


serve({"evaluate": evaluate, "expected": expected})
