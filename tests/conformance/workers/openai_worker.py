"""OpenAI's client: asks in its own ways, and returns what it made of the answers."""

from concurrent.futures import ThreadPoolExecutor

import openai
from line_server import serve


def client(url, key="none"):
    return openai.OpenAI(base_url=f"http://{url}/v1", api_key=key, max_retries=0, timeout=120)


def models(url, key="none"):
    return [model.id for model in client(url, key).models.list()]


def completions(url, bodies):
    """The answers to these requests, all at once."""
    ours = client(url)
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: ours.completions.create(**body).model_dump(), bodies))


def completion_stream(url, body):
    return [chunk.model_dump() for chunk in client(url).completions.create(**body, stream=True)]


def chat(url, body):
    return client(url).chat.completions.create(**body).model_dump()


def chat_stream(url, body):
    return [chunk.model_dump() for chunk in client(url).chat.completions.create(**body, stream=True)]


def response(url, body):
    answer = client(url).responses.create(**body)
    return answer.model_dump() | {"output_text": answer.output_text}


def response_stream(url, body):
    """The types of the events, and their text."""
    events = list(client(url).responses.create(**body, stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    return {"kinds": [event.type for event in events], "text": text, "numbers": [event.sequence_number for event in events]}


def refused(url, route, body, key="none"):
    """The class of the client's exception, and what it says."""
    ours = client(url, key)
    create = {"completions": ours.completions.create, "chat": ours.chat.completions.create, "responses": ours.responses.create}[route]
    try:
        create(**body)
    except openai.APIStatusError as error:
        return {"class": type(error).__name__, "status": error.status_code, "param": error.param, "code": error.code, "message": error.message}
    raise AssertionError("it was answered")


if __name__ == "__main__":
    serve({function.__name__: function for function in (models, completions, completion_stream, chat, chat_stream, response, response_stream, refused)})
