"""Chat templates with the constructs of families of models, conversations to render with them, and expressions of Jinja and Python."""

CHATML = """{%- if messages[0].role != 'system' %}{{- '<|im_start|>system\\nYou are helpful<|im_end|>\\n' }}{% endif %}
{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content']|default('') + '<|im_end|>' + '\\n'}}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

QWEN_TOOLS = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n{\\"name\\": <function-name>}<|im_end|>\\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}{{- tool_call.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

QWEN_THINKING = """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}{{- '<|im_start|>assistant\\n' + content }}{%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
            {{- tool_call.function.arguments if tool_call.function.arguments is string else tool_call.function.arguments | tojson }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- else %}{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

LLAMA3 = """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

LLAMA31 = """{{- bos_token }}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("This model only supports single tool-calls at once!") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}{%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}{{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}{%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}{%- set content = message.content.content %}{%- else %}{%- set content = message.content %}{%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}{{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}{%- endif %}
{%- endfor %}
"""

GEMMA2 = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}"""

GEMMA3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

PHI3 = """{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"""

PHI4 = """{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'assistant') %}{{'<|im_start|>assistant<|im_sep|>'}}{% generation %}{{message['content'] + '<|im_end|>'}}{% endgeneration %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

VICUNA = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = 'A chat.' %}{% endif %}{{ system_message }}
{%- for message in loop_messages %}{% if loop.index0 == 0 %}{{ ' ' }}{% else %}{{ '\\n' if loop.previtem.role == 'assistant' else ' ' }}{% endif %}{{ message.role | upper }}: {{ message.content | default('', true) | trim }}{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}
{%- if add_generation_prompt %} ASSISTANT:{% endif %}"""

DEEPSEEK = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{%- if message['content'] is none or message['content'] is not defined %}{{'<｜Assistant｜><｜tool▁calls▁begin｜>' + tool['function']['name'] + '\\n```json\\n' + tool['function']['arguments']|tojson + '\\n```'}}{%- else %}{{'<｜Assistant｜>' + message['content'] + tool['function']['name'] + tool['function']['arguments']|tojson}}{%- endif %}{%- set ns.is_first = true -%}{%- else %}{{'\\n' + tool['function']['name']}}{%- endif %}{%- endfor %}{{'<｜tool▁calls▁end｜>'}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<｜tool▁outputs▁begin｜>' + message['content']}}{%- set ns.is_output_first = false %}{%- else %}{{'\\n' + message['content']}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}"""

HERMES = """{%- macro json_to_python_type(json_spec) %}
{%- set basic_type_map = {
    "string": "str",
    "number": "float",
    "integer": "int",
    "boolean": "bool"
} %}
{%- if basic_type_map[json_spec.type] is defined %}
    {{- basic_type_map[json_spec.type] }}
{%- elif json_spec.type == "array" %}
    {{- "list[" +  json_to_python_type(json_spec['items']) + "]"}}
{%- elif json_spec.type == "object" %}
    {%- if json_spec.additionalProperties is defined %}
        {{- "dict[str, " + json_to_python_type(json_spec.additionalProperties) + ']'}}
    {%- else %}{{- "dict" }}{%- endif %}
{%- elif json_spec.type is iterable %}
    {{- "Union[" }}
    {%- for t in json_spec.type %}
      {{- json_to_python_type({"type": t}) }}
      {%- if not loop.last %}{{- "," }}{%- endif %}
    {%- endfor %}
    {{- "]" }}
{%- else %}{{- "Any" }}{%- endif %}
{%- endmacro %}
{{- bos_token }}
{{- '<|im_start|>system\\n' }}
{%- if tools %}
{%- for tool in tools %}
    {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
    {{- '{"type": "function", "function": ' }}
    {{- '{"name": "' + tool.name + '", ' }}
    {{- '"description": "' + tool.name + '(' }}
    {%- for param_name, param_fields in tool.parameters.properties|items %}
        {{- param_name + ": " + json_to_python_type(param_fields) }}
        {%- if not loop.last %}{{- ", " }}{%- endif %}
    {%- endfor %}
    {{- ")" }}
    {%- if tool.return is defined %}{{- " -> " + json_to_python_type(tool.return) }}{%- endif %}
    {{- " - " + tool.description + "\\n\\n" }}
    {%- for param_name, param_fields in tool.parameters.properties.items() %}
        {%- if loop.first %}{{- "    Args:\\n" }}{%- endif %}
        {{- "        " + param_name + "(" + json_to_python_type(param_fields) + "): " + param_fields.description|default('')|trim }}
    {%- endfor %}
    {{- '", "parameters": ' }}
    {%- if tool.parameters.properties | length == 0 %}{{- "{}" }}{%- else %}{{- tool.parameters|tojson }}{%- endif %}
    {{- "}" }}
    {%- if not loop.last %}{{- "\\n" }}{%- endif %}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- for message in messages %}
    {%- if message.role == "assistant" and message.tool_calls is defined %}
        {%- for tool_call in message.tool_calls %}
            {{- '<tool_call>\\n{"name": "' + tool_call.function.name + '", "arguments": ' + tool_call.function.arguments|tojson(ensure_ascii=false) + '}\\n</tool_call>' }}
        {%- endfor %}
    {%- else %}{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
"""

COMMAND = """{{ bos_token }}{%- macro document_turn(documents) -%}
{% if documents -%}
<|START_ACTION|>[
{% for doc in documents %}
    {% if not loop.first %},
{% endif %}    {"document_id": "{{ loop.index0 }}", {% for key, value in doc.items() %}"{{ key | title }}": {{ value | tojson(sort_keys=true) }}{% if not loop.last %}, {% endif %}{% endfor %}}
{%- endfor %}

]<|END_ACTION|>
{%- endif %}{%- endmacro %}
{%- set tool_idx = namespace(value=0, names=[]) %}
{%- for message in messages %}
{%- if message.role|lower == 'system' %}<|SYSTEM|>{{ message.content|trim }}
{%- elif message.role|lower in ['user', 'human'] %}<|USER|>{{ message.content }}{{ document_turn(documents) }}
{%- elif message.role|lower == 'assistant' or message.role|lower == 'chatbot' %}<|BOT|>{% if message.tool_calls is defined and message.tool_calls %}{% for tc in message.tool_calls %}{"tool_call_id": "{{ tool_idx.value }}", "tool_name": "{{ tc['function']['name'] }}", "parameters": {{ tc['function']['arguments']|tojson }}}{% set tool_idx.value = tool_idx.value + 1 %}{% set tool_idx.names = tool_idx.names + [tc['function']['name']] %}{% if not loop.last %},{% endif %}{% endfor %}{% else %}{{ message.content }}{% endif %}
{%- endif %}
{%- endfor %}{{ tool_idx.names | join(', ') }}{{ tool_idx.names }}{% if add_generation_prompt %}<|BOT|>{% endif %}"""

GRANITE = """{%- if messages[0]['role'] == 'system' %}
  {%- set system_message = messages[0]['content'] %}
  {%- set loop_messages = messages[1:] %}
{%- else %}
  {%- set system_message = "Knowledge Cutoff Date: April 2024.\\nToday's Date: " + strftime_now('%B %d, %Y') + ".\\n" %}
  {%- if tools and documents %}{%- set system_message = system_message + 'both' %}{%- elif tools %}{%- set system_message = system_message + 'tools' %}{%- elif documents %}{%- set system_message = system_message + 'documents' %}{%- endif %}
  {%- if controls and 'citations' in controls and documents %}{%- set system_message = system_message + '\\n\\nUse citations' %}{%- endif %}
  {%- set loop_messages = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\\n' }}
{%- if tools %}{{- '<|start_of_role|>tools<|end_of_role|>' }}{{- tools | tojson(indent=4) }}{{- '<|end_of_text|>\\n' }}{%- endif %}
{%- if documents %}
  {{- '<|start_of_role|>documents<|end_of_role|>' }}
  {%- for document in documents %}
    {{- 'Document ' + loop.index | string + '\\n' }}{{- document['text'] }}{%- if not loop.last %}{{- '\\n\\n'}}{%- endif%}
  {%- endfor %}
{%- endif %}
{%- for message in loop_messages %}
  {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + (message['content'] if message['content'] is defined else '') + '<|end_of_text|>\\n' }}
  {%- if loop.last and add_generation_prompt %}
    {{- '<|start_of_role|>assistant' }}
    {%- if controls %}{{- ' ' + controls | tojson()}}{%- endif %}
    {{- '<|end_of_role|>' }}
  {%- endif %}
{%- endfor %}"""

GPT_OSS = """{%- macro render_typescript_type(param_spec, required_params, is_nullable=false) -%}
    {%- if param_spec.type == "array" -%}
        {%- if param_spec['items'] -%}
            {{- render_typescript_type(param_spec['items'], required_params) + "[]" }}
        {%- else -%}{{- "any[]" }}{%- endif -%}
        {%- if param_spec.nullable -%}{{- " | null" }}{%- endif -%}
    {%- elif param_spec.type is defined and param_spec.type is iterable and param_spec.type is not string and param_spec.type is not mapping and param_spec.type[0] is defined -%}
        {{- param_spec.type | join(" | ") }}
    {%- elif param_spec.oneOf -%}
        {%- for variant in param_spec.oneOf -%}{{- render_typescript_type(variant, required_params) -}}{%- if not loop.last %}{{- " | " }}{%- endif -%}{%- endfor -%}
    {%- elif param_spec.type == "string" -%}
        {%- if param_spec.enum -%}{{- '"' + param_spec.enum|join('" | "') + '"' -}}{%- else -%}{{- "string" }}{%- endif -%}
    {%- elif param_spec.type == "number" or param_spec.type == "integer" -%}{{- "number" }}
    {%- elif param_spec.type == "boolean" -%}{{- "boolean" }}
    {%- elif param_spec.type == "object" -%}
        {%- if param_spec.properties -%}
            {{- "{\\n" }}
            {%- for prop_name, prop_spec in param_spec.properties.items() -%}
                {{- prop_name -}}{%- if prop_name not in (param_spec.required or []) -%}{{- "?" }}{%- endif -%}{{- ": " }}{{ render_typescript_type(prop_spec, param_spec.required or []) }}{%- if not loop.last -%}{{-", " }}{%- endif -%}
            {%- endfor -%}
            {{- "}" }}
        {%- else -%}{{- "object" }}{%- endif -%}
    {%- else -%}{{- "any" }}{%- endif -%}
{%- endmacro -%}
{%- macro render_tool_namespace(namespace_name, tools) -%}
    {{- "## " + namespace_name + "\\n\\nnamespace " + namespace_name + " {\\n\\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {{- "// " + tool.description + "\\n" }}{{- "type " + tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}
            {{- "(_: {\\n" }}
            {%- for param_name, param_spec in tool.parameters.properties.items() %}
                {%- if param_spec.description %}{{- "// " + param_spec.description + "\\n" }}{%- endif %}
                {{- param_name }}{%- if param_name not in (tool.parameters.required or []) -%}{{- "?" }}{%- endif -%}
                {{- ": " }}{{- render_typescript_type(param_spec, tool.parameters.required or []) }}
                {%- if param_spec.default is defined -%}
                    {%- if param_spec.enum %}{{- ", // default: " + param_spec.default }}{%- elif param_spec.oneOf %}{{- "// default: " + param_spec.default }}{%- else %}{{- ", // default: " + param_spec.default|tojson }}{%- endif -%}
                {%- endif -%}
                {%- if not loop.last %}{{- ",\\n" }}{%- else %}{{- ",\\n" }}{%- endif -%}
            {%- endfor %}
            {{- "}) => any;\\n\\n" }}
        {%- else -%}{{- "() => any;\\n\\n" }}{%- endif -%}
    {%- endfor %}
    {{- "} // namespace " + namespace_name }}
{%- endmacro -%}
{{- "<|start|>system<|message|>Current date: " + strftime_now("%Y-%m-%d") + "\\nReasoning: " + (reasoning_effort or "medium") + "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}{%- set developer_message = messages[0].content %}{%- set loop_messages = messages[1:] %}{%- else %}{%- set developer_message = "" %}{%- set loop_messages = messages %}{%- endif %}
{%- if developer_message or tools %}{{- "<|start|>developer<|message|>" }}{{- developer_message }}{%- if tools -%}{{- "\\n\\n# Tools\\n\\n" }}{{- render_tool_namespace("functions", tools) }}{%- endif -%}{{- "<|end|>" }}{%- endif %}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in loop_messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message and "<|channel|>analysis<|message|>" in message.content %}{{- raise_exception("You have passed a message containing channel tags") }}{%- endif %}
        {%- if "tool_calls" in message %}
            {%- set tool_call = message.tool_calls[0] %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {%- if message.thinking %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant to=" }}{{- "functions." + tool_call.name + "<|channel|>commentary " }}{{- (tool_call.content_type if tool_call.content_type is defined else "json") + "<|message|>" }}{{- tool_call.arguments|tojson }}{{- "<|call|>" }}
            {%- set last_tool_call.name = tool_call.name %}
        {%- elif loop.last and not add_generation_prompt %}{{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}{{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}{%- set last_tool_call.name = none %}{%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}{{- raise_exception("Message has tool role, but there was no previous assistant message with a tool call!") }}{%- endif %}
        {{- "<|start|>functions." + last_tool_call.name + " to=assistant<|channel|>commentary<|message|>" + message.content|tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}{{- "<|start|>user<|message|>" + message.content + "<|end|>" }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
"""

GLM = """[gMASK]<sop>
{%- if tools -%}
<|system|>
# Tools
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
{%- endif -%}
{%- macro visible_text(content) -%}
    {%- if content is string -%}
        {{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}
            {%- if item is mapping and item.type == 'text' -%}{{- item.text }}{%- elif item is string -%}{{- item }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{- content }}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_user_index=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{% set ns.last_user_index = loop.index0 -%}{%- endif %}{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible_text(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible_text(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set content = visible_text(m.content) %}
{%- if content.strip() -%}{{ '\\n' + content.strip() }}{%- endif -%}
{% if m.tool_calls %}
{% for tc in m.tool_calls %}
{%- if tc.function %}{%- set tc = tc.function %}{%- endif %}
{{ '\\n<tool_call>' + tc.name }}
{% set _args = tc.arguments %}
{% for k, v in _args.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}
{% endif %}
{%- elif m.role == 'tool' -%}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|observation|>' }}{% endif %}
{{- '\\n<tool_response>\\n' }}{{- m.content }}{{- '\\n</tool_response>' }}
{%- elif m.role == 'system' -%}
<|system|>
{{ visible_text(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{{- '\\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}{%- endif -%}
"""

SMOLLM = """{%- if reasoning_mode is not defined -%}{%- set reasoning_mode = "/think" if enable_thinking is not defined or enable_thinking else "/no_think" -%}{%- endif -%}
{{- "<|im_start|>system\\n" -}}
{%- if messages[0].role == "system" -%}
  {%- set system_message = messages[0].content -%}
  {%- if "/no_think" in system_message -%}{%- set reasoning_mode = "/no_think" -%}{%- endif -%}
  {%- set custom_instructions = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{%- set today = strftime_now("%d %B %Y") -%}
{{- "Today Date: " ~ today ~ "\\nMode: " + reasoning_mode + "\\n\\n" -}}
{%- if custom_instructions -%}{{- custom_instructions + "\\n\\n" -}}{%- endif -%}
{%- if xml_tools or python_tools or tools -%}
  {%- set ns = namespace(xml_tool_string="<tools>\\n") -%}
  {%- for tool in (xml_tools or tools)[:2] -%}{%- set ns.xml_tool_string = ns.xml_tool_string ~ (tool | string) ~ "\\n" -%}{%- endfor -%}
  {{- ns.xml_tool_string + "</tools>" -}}
{%- endif -%}
{{- "<|im_end|>\\n" -}}
{%- for message in messages -%}
  {%- set content = message.content if message.content is string else "" -%}
  {%- if message.role == "user" -%}{{ "<|im_start|>user\\n" + content + "<|im_end|>\\n" }}
  {%- elif message.role == "assistant" -%}
    {% generation %}
    {%- if reasoning_mode == "/think" -%}{{ "<|im_start|>assistant\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}{%- else -%}{{ "<|im_start|>assistant\\n<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}{%- endif -%}
    {% endgeneration %}
  {%- elif message.role == "tool" -%}{{ "<|im_start|>user\\n" + content + "<|im_end|>\\n" }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ "<|im_start|>assistant\\n" }}{%- endif -%}
"""

FALCON = """{% for message in messages %}{% if not loop.first %}{{ '\n' }}{% endif %}{% if message['role'] == 'system' %}{{ 'System: ' + message['content'].strip() }}{% elif message['role'] == 'user' %}{{ 'User: ' + message['content'].strip().replace('\r\n', '\n').replace('\n\n', '\n') }}{% elif message['role'] == 'assistant' %}{{ 'Falcon: ' + message['content'] }}{% else %}{% continue %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '\n' + 'Falcon:' }}{% endif %}"""

OLMO = """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|system|>
' + message['content'] + '
' }}{% elif message['role'] == 'user' %}{{ '<|user|>
' + message['content'] + '
' }}{% elif message['role'] == 'assistant' %}{% if not loop.last %}{{ '<|assistant|>
'  + message['content'] + eos_token + '
' }}{% else %}{{ '<|assistant|>
'  + message['content'] + eos_token }}{% endif %}{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>
' }}{% endif %}{% endfor %}
"""

KIMI = """{%- macro render_content(msg) -%}
    {%- set c = msg.get('content') -%}
    {%- if c is string -%}
      {{ c }}
    {%- elif c is not none -%}
      {% for content in c -%}
        {% if content['type'] == 'image' or 'image' in content or 'image_url' in content -%}
          <|media_start|>image<|media_end|>
        {% else -%}
          {{ content['text'] }}
        {%- endif -%}
      {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- if tools -%}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson(separators=(',', ':')) }}<|im_end|>{%- endif -%}
{%- for message in messages -%}
  {%- if loop.first and messages[0]['role'] != 'system' -%}<|im_system|>system<|im_middle|>You are Kimi<|im_end|>{%- endif -%}
  {%- set role_name = message.get('name') or message['role'] -%}
  <|im_{{ message['role'] }}|>{{ role_name }}<|im_middle|>
  {%- if message['role'] == 'assistant' and message.get('tool_calls') -%}
    {{ render_content(message) }}<|tool_calls_section_begin|>
    {%- for tool_call in message['tool_calls'] -%}
      {%- set formatted_id = tool_call['id'] -%}
      <|tool_call_begin|>{{ formatted_id }}<|tool_call_argument_begin|>{% if tool_call['function']['arguments'] is string %}{{ tool_call['function']['arguments'] }}{% else %}{{ tool_call['function']['arguments'] | tojson }}{% endif %}<|tool_call_end|>
    {%- endfor -%}
    <|tool_calls_section_end|>
  {%- elif message['role'] == 'tool' -%}
    ## Return of {{ message.tool_call_id }}
{{ render_content(message) }}
  {%- elif message['content'] is not none -%}
    {{ render_content(message) }}
  {%- endif -%}
  <|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}"""

YI = """{%- for message in messages if message.role != 'tool' -%}
{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>' }}
{% if not loop.last %}{{ '\\n' }}{% endif %}
{%- else -%}nothing{%- endfor %}
{%+ if add_generation_prompt +%}
   {{- '<|im_start|>assistant' }}
{% endif %}"""

FAMILIES = {
    "chatml": CHATML, "qwen2.5": QWEN_TOOLS, "qwen3": QWEN_THINKING, "llama2": LLAMA2, "llama3": LLAMA3, "llama3.1": LLAMA31, "mistral": MISTRAL,
    "gemma2": GEMMA2, "gemma3": GEMMA3, "phi3": PHI3, "phi4": PHI4, "zephyr": ZEPHYR, "vicuna": VICUNA, "deepseek": DEEPSEEK, "hermes": HERMES,
    "command-r": COMMAND, "granite": GRANITE, "gpt-oss": GPT_OSS, "glm4": GLM, "smollm3": SMOLLM, "falcon3": FALCON, "olmo2": OLMO, "kimi": KIMI, "yi": YI,
}

TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "The weather of a “city” <now> & 'then'",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": " A city — größer "}, "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": "array", "items": {"type": "integer"}}, "limit": {"type": ["number", "string"], "default": 1e-7}, "deep": {"type": "boolean"}}}}},
    {"type": "function", "function": {
        "name": "shop", "description": "Items", "parameters": {"type": "object", "properties": {
            "items": {"type": "array", "items": {"type": "object", "properties": {"keys": {"type": "string"}, "values": {"type": "number"}}}},
            "get": {"type": "object", "additionalProperties": {"type": "number"}}, "update": {"oneOf": [{"type": "string"}, {"type": "boolean"}], "default": "x"}}}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
]
ODD = " \t\x1c\u200bZwölf \"Boxkämpfer\" 'jagen' <&> \\n {{ x }} {% y %} 🤗👩‍👩‍👧\r\n\r\n\x85\u2028end\x7f\u3000"


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


def system(text):
    return {"role": "system", "content": text}


CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call12345", "type": "function", "function": {"name": "weather", "arguments": {
        "city": "Köln\n", "days": [1, 2.0, 1e16, 1e-5, -0.0, 12345678901234567890], "deep": True, "none": None, "map": {"b": {}, "a": []}}}}]}
RESULT = {"role": "tool", "tool_call_id": "call12345", "name": "weather", "content": "{\"temperature\": 1.0}"}
CONVERSATIONS = {
    "one": {"messages": [user("Hi")]},
    "system": {"messages": [system(" Be brief.\n"), user("Hi")]},
    "answered": {"messages": [user("Hi"), answer(" Hello! ")], "add_generation_prompt": False},
    "turns": {"messages": [system("S")] + [turn for at in range(20) for turn in (user(f"question {at}"), answer(f"answer {at}\n"))] + [user("last")]},
    "odd": {"messages": [system(ODD), user(ODD), answer(ODD), user("")]},
    "empty": {"messages": [user(""), answer("")]},
    "tools": {"messages": [system("S"), user("Weather?")], "tools": TOOLS},
    "tools without system": {"messages": [user("Weather?")], "tools": TOOLS[:1]},
    "called": {"messages": [user("Weather?"), CALL, RESULT, answer("1°"), user("Thanks")], "tools": TOOLS},
    "calling": {"messages": [user("Weather?"), CALL, RESULT], "tools": TOOLS[1:]},
    "two calls": {"messages": [user("?"), {**CALL, "content": "Let me see", "tool_calls": CALL["tool_calls"] * 2}, RESULT, RESULT]},
    "thinking": {"messages": [user("1"), answer("<think>\nhm\n</think>\n\ntwo"), user("2"), {**answer("three"), "reasoning": "so\n"}], "add_generation_prompt": False},
    "no thinking": {"messages": [user("1")], "chat_template_kwargs": {"enable_thinking": False, "reasoning_effort": "high", "controls": {"citations": True}}},
    "documents": {"messages": [user("?")], "documents": [{"title": "one", "text": "a <b>"}, {"text": "c", "title": "two"}]},
    "wrong turns": {"messages": [user("1"), user("2"), answer("3"), answer("4")]},
    "other role": {"messages": [{"role": "developer", "content": "D"}, user("1"), {"role": "critic", "content": "no"}]},
    "parts": {"messages": [user([{"type": "image"}, {"type": "text", "text": " What? "}]), answer("A")]},
}
# Families whose templates write parts; the others get their texts joined, which transformers does not do.
TAKES_PARTS = {"gemma3", "glm4", "kimi"}

# Expressions over `x`, the value of the next table.
VALUES = {
    "text": " Hello wORLD's\tß ﬁ ǆ ŉ 日本 \x1f", "lines": "a\r\nb\n\nc\x0bd\u2028e\n", "list": [1, 2.5, "a", None, True, [], {}, "it's", 'q"\'', "\n\x00\xad\u200b\U000e0001é"],
    "map": {"b": 1, "a": {"items": 2, "x": [None]}, "items": 3, "get": 4, "": False}, "number": -7, "float": 2.675, "large": 1e22, "small": 1.5e-7,
    "truth": True, "none": None, "words": ["b", "a", "C", "ab"], "maps": [{"n": 2, "k": {"z": "x"}}, {"n": 1, "k": {"z": "y"}}, {"k": {"z": "w"}}],
}
EXPRESSIONS = [
    "x", "x ~ x", "x|string", "x|tojson", "x|tojson(indent=2)", "x|tojson(indent=0)", "x|tojson(ensure_ascii=true)", "x|tojson(separators=(',', ':'))", "x|tojson(sort_keys=True)",
    "[x, x]", "{'k': x}", "(x, 1)", "(x,)", "x == x", "x != 1", "x is string", "x is number", "x is integer", "x is float", "x is boolean", "x is mapping", "x is iterable",
    "x is sequence", "x is none", "x is defined", "x is true", "x is false", "x is undefined", "x is callable", "x is odd", "x is even", "x is divisibleby 7", "x is lower", "x is upper",
    "x|length", "x|count", "x|upper", "x|lower", "x|title", "x|capitalize", "x|trim", "x|trim(' H')", "x|first", "x|last", "x|list", "x|join", "x|join(', ')", "x|join(d='-')", "x|reverse|list",
    "x|sort", "x|sort(reverse=true)", "x|sort(attribute='n')", "x|unique|list", "x|int", "x|float", "x|abs", "x|round", "x|round(2)", "x|round(0, 'floor')", "x|default('d')", "x|default('d', true)",
    "x|replace('a', 'bb')", "x|replace('l', 'L', 1)", "x|indent", "x|indent(2, true)", "x|indent(1, blank=true)", "x|center(30)", "x|items|list", "x|dictsort", "x|dictsort(by='value')",
    "x|map('string')|list", "x|map(attribute='k')|list", "x|map(attribute='k.z')|join(',')", "x|map(attribute='n', default=9)|list", "x|map('upper')|join", "x|select('string')|list",
    "x|reject('none')|list", "x|selectattr('n')|list", "x|selectattr('n', 'defined')|list", "x|selectattr('n', 'equalto', 2)|map(attribute='n')|list", "x|rejectattr('n', 'defined')|list", "x|sum", "x|sum(attribute='n')",
    "x|min", "x|max", "x|batch(2)|list", "x|slice(2)|list", "x|groupby('n')", "x|e", "x|safe", "'%s|%5.2f'|format(x, 2)", "'<{}>'.format(x)", "'{0}{1}{0}{a}{{}}'.format(x, 2, a=3)",
    "x.strip()", "x.lstrip()", "x.rstrip()", "x.strip(' H\\x1f')", "x.upper()", "x.lower()", "x.title()", "x.capitalize()", "x.swapcase()", "x.split()", "x.split(None, 1)", "x.rsplit(None, 1)", "x.split('l')",
    "x.split('l', 1)", "x.rsplit('l', 1)", "x.split('')", "x.splitlines()", "x.splitlines(true)", "x.startswith(' H')", "x.endswith(('a', '\\x1f'))", "x.startswith('e', 2)", "x.find('l')", "x.rfind('l')", "x.find('zz')", "x.index('l')",
    "x.index('zz')", "x.count('l')", "x.replace('l', 'LL')", "x.replace('', '-')", "x.replace('l', '', 1)", "x.partition('l')", "x.rpartition('zz')", "x.removeprefix(' ')", "x.removesuffix('\\x1f')", "x.center(33, '*')",
    "x.ljust(30)", "x.rjust(30)", "x.zfill(30)", "x.isdigit()", "x.isalpha()", "x.isspace()", "x.isupper()", "x.islower()", "x.isalnum()", "x.istitle()", "', '.join(x)", "x.items()|list", "x.keys()|list", "x.values()|list",
    "x.get('a')", "x.get('zz')", "x.get('zz', 'd')", "x['a']", "x.a", "x['zz']", "x.zz", "x.zz.y", "x.count('a')", "x.index('a')", "x.append(1)", "x.update({})", "x.pop()", "x.nope()",
    "x[0]", "x[-1]", "x[1:]", "x[:-1]", "x[::-1]", "x[::2]", "x[1:3]|list", "x[99:]", "x + x", "x + 1", "x - 1", "x * 2", "x / 2", "x // 2", "x % 3", "x ** 2", "-x", "+x", "x < 3", "x > 'a'", "1 < 2 < 3", "x and 'y'", "x or 'n'",
    "not x", "'a' in x", "'l' in x", "2.5 in x", "x in [x]", "x not in []", "'y' if x else 'n'", "'y' if false", "x is eq x", "x is in [x]", "x is sameas x", "x is not none", "x is filter", "'upper' is filter",
    "range(3)|list", "range(1, 7, 2)|list", "range(3)", "dict(a=x)", "dict({'a': 1}, b=2)", "dict(x)", "namespace(a=x).a", "lipsum", "cycler", "joiner", "'a' 'b'", "'\\u00e9\\x41\\101\\q'", "1_000", "1e3", "0x10", "1.0", "3.0 == 3", "true == 1",
    "loop", "nothing", "nothing.x", "nothing|length", "nothing + 'a'", "nothing ~ 'a'", "nothing == none", "nothing in [1]", "1 in nothing", "nothing|tojson", "none|tojson", "x|tojson|length", "('a', 'b')|tojson", "{1: 2, none: 3, true: 4, 1.5: 5}|tojson",
    "messages|length", "tools is defined", "tools is none", "documents", "bos_token", "eos_token is defined", "pad_token is defined", "image_token", "add_generation_prompt",
    "10|string + 'a'", "1.0|int", "'12abc'|int", "'12'|int + 1", "'0x1f'|int(base=16)", "'1.5'|float", "'x'|float(2.0)", "7 // -2", "-7 % 3", "7.5 // 2", "2 ** -1", "2 ** 0.5", "1e16", "123456789.123", "1/3", "10**15|float", "0.1 + 0.2", "1e100|int",
    "raise_exception('no ' ~ x)", "strftime_now('%Y-%m-%d %j %A %B %d %%')", "strftime_now('%Q')", "x|wordcount", "x|truncate(5)", "x|urlencode", "x|pprint", "x|tojson|safe", "x|attr('a')", "x|string|length",
]
STATEMENTS = [
    "{% for a in x %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{{ loop.depth }}{{ loop.cycle('p', 'q') }}{{ a }};{% else %}none{% endfor %}",
    "{% for k, v in x.items() %}{{ k }}={{ v }},{% endfor %}", "{% for k, v in x|dictsort %}{{ k }}={{ v }},{% endfor %}", "{% for k in x %}{{ k }},{% endfor %}",
    "{% for a in x recursive %}{{ a }}{% if a is iterable and a is not string %}[{{ loop(a) }}]{% endif %}{% endfor %}",
    "{% for a in [1, 2, 3, 4] %}{% if a == 2 %}{% continue %}{% endif %}{% if a == 4 %}{% break %}{% endif %}{{ a }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.changed(a) }}{% endfor %}",
    "{% set y = 1 %}{% for a in [1, 2] %}{% set y = a %}{% endfor %}{{ y }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set y %} block {{ x }} {% endset %}[{{ y }}]{{ y|length }}",
    "{% set ns = namespace(n=0, l=[]) %}{% for a in [1, 2, 3] %}{% set ns.n = ns.n + a %}{% set ns.l = ns.l + [a] %}{% endfor %}{{ ns.n }}{{ ns.l }}",
    "{% macro m(a, b='d', c=x) %}<{{ a }}|{{ b }}|{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m(b=1) }}{{ m(1)|length }}",
    "{% macro m(a) %}{{ caller() }}{{ a }}{% endmacro %}{% call m(1) %}inside {{ x }}{% endcall %}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% with y = x, z = 2 %}{{ y }}{{ z }}{% endwith %}{{ z }}", "{% filter upper %}abc {{ x }}{% endfilter %}", "{% raw %}{{ x }}{% endraw %}", "{# comment #}a{#- b -#} c",
    "a\n  {% if true %}\n  b\n  {%- endif %}\n  c\n\n", "a \n {%+ if true %}b{% endif +%}\n c\n", "  {{ 'a' }}  \n  {# c #}  \nb\n\n", "\n\n{{ 1 }}\n", "a\r\nb\rc\r\n", "{% if x %}1{% elif not x %}2{% else %}3{% endif %}",
    "{% generation %} a {% set y = 1 %}{{ y }}{% endgeneration %}{{ y }}", "{%- generation -%}\n a \n{%- endgeneration -%}\n b", "{% if x is string %}{% for c in x %}{{ c }}.{% endfor %}{% endif %}",
    "{% for a in range(3) if a != 1 %}{{ loop.index }}{{ a }}{% endfor %}", "{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }}{% endfor %}", "{{ {'a': {'b': {'c': x}}}['a'].b['c'] }}", "{% set d = {'a': 1} %}{% set d = dict(d, **{'b': 2}) %}{{ d }}",
    "{% for m in messages[1:] %}{{ m.role }}{% endfor %}{{ messages[1:]|length }}{{ messages[1:][0].role }}{{ (messages + messages)|length }}{{ messages[-1]['role'] }}{{ messages[1:] is sequence }}",
    "{% for a in x|groupby('n') %}{{ a.grouper }}{{ a.list|length }}{% endfor %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% block a %}in {{ x }}{% endblock %}", "{% do x %}", "{{ x", "{% if %}", "{% endfor %}", "{% unknown %}", "{{ 1 + }}",
    "{% set messages = messages[:1] %}{{ messages|length }}", "{{ x.__class__ }}", "{{ ''.__class__.__mro__ }}", "{% set ns = namespace(_a=1) %}{{ ns._a }}", "{% break %}", "{% set x.y = 1 %}", "{{ self }}", "{% autoescape true %}{{ '<' }}{% endautoescape %}",
    "{% trans %}a{% endtrans %}", "{{ '<' ~ '>' }}{{ '<'|e }}{{ '<'|safe ~ '>' }}", "{%if x%}y{%endif%}{%-if x-%} y {%-endif-%}", "{{ x if x is defined and x else 'no' }}",
]
HOSTILE = {
    "loops": "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{{ a }}{% endfor %}{% endfor %}{% endfor %}",
    "silent loops": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "doubled text": "{% set ns = namespace(x='aaaaaaaa') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x|length }}",
    "doubled list": "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x|length }}{{ ns.x }}",
    "list of lists": "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "deep list": "{% set ns = namespace(x=[1]) %}{% for a in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "compared": "{% set ns = namespace(x=[1], y=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
    "nested macros": "{% macro f(x, n) %}{% if n %}{{ f([x, x], n - 1) }}{% else %}{{ x }}{% endif %}{% endmacro %}{{ f([1], 60) }}",
    "compared in macros": "{% macro f(x, y, n) %}{% if n %}{{ f([x, x], [y, y], n - 1) }}{% else %}{{ x == y }}{% endif %}{% endmacro %}{{ f([1], [1], 60) }}",
    "found in macros": "{% macro f(x, y, n) %}{% if n %}{{ f([x, x], [y, y], n - 1) }}{% else %}{{ x in [y] }}{{ [x]|unique|list }}{% endif %}{% endmacro %}{{ f([1], [1], 60) }}",
    "key in macros": "{% macro f(x, n) %}{% if n %}{{ f((x, x), n - 1) }}{% else %}{{ {(1, 1): 2}[x] }}{% endif %}{% endmacro %}{{ f((1, 1), 60) }}",
    "joined in macros": "{% macro f(x, n) %}{% if n %}{{ f([x, x], n - 1) }}{% else %}{{ x ~ '' }}{{ x|join }}{{ x|upper }}{{ x|tojson }}{% endif %}{% endmacro %}{{ f([1], 60) }}",
    "recursion": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "mutual recursion": "{% macro f(x) %}{{ g(x) }}{{ g(x) }}{% endmacro %}{% macro g(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "tree of calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "recursive loop": "{% for a in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "large range": "{{ range(10**18)|list }}", "long text": "{{ 'a' * 10**12 }}", "long texts": "{% for a in range(1000) %}{{ ('a' * 1000000)|length }}{% endfor %}", "padding": "{{ 'a'.center(10**12) }}",
    "padded": "{% for a in range(100000) %}{{ 'a'.ljust(10**7)|length }}{% endfor %}", "wide format": "{{ '%999999999999d'|format(1) }}", "indented": "{{ ('\\n' * 100000)|indent(100000) }}",
    "replaced": "{{ ('a' * 100000).replace('a', 'b' * 100000)|length }}", "power": "{{ 10 ** 10 ** 10 }}", "powers": "{{ 2 ** 100000000 }}",
    "brackets": "{{ " + "[" * 10000 + "]" * 10000 + " }}", "parentheses": "{{ " + "(" * 10000 + "1" + ")" * 10000 + " }}", "sums": "{{ 1" + "+1" * 100000 + " }}", "joins": "{{ 1" + "~1" * 100000 + " }}", "negations": "{{ " + "not " * 100000 + "1 }}",
    "signs": "{{ " + "-" * 100000 + "1 }}", "members": "{{ x" + ".a" * 100000 + " }}", "filters": "{{ x" + "|string" * 50000 + " }}", "calls": "{{ x" + "()" * 50000 + " }}", "items": "{{ x" + "[0]" * 50000 + " }}", "tests": "{{ x" + " is defined" * 30000 + " }}",
    "ternaries": "{{ " + "1 if 1 else " * 20000 + "1 }}", "ifs": "{% if 1 %}" * 20000, "closed ifs": "{% if 1 %}" * 10000 + "{% endif %}" * 10000, "branches": "{% if 0 %}" + "{% elif 0 %}" * 19000 + "{% endif %}", "fors": "{% for a in [1] %}" * 10000,
    "targets": "{% set " + "(" * 100000 + "a" + ")" * 100000 + " = 1 %}", "long": "a" * 10000000, "names": "{{ " + "a" * 200000 + " }}", "sets": "{% set x = [x] %}" * 10000 + "{{ x }}", "doubled sets": "{% set x = [x, x] %}" * 100 + "{{ x == [x] }}{{ x }}",
    "own namespace": "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns.a.a.a }}", "batches": "{% set ns = namespace(x=[[1]]) %}{% for a in range(60) %}{% set ns.x = (ns.x + ns.x)|batch(2)|list %}{% endfor %}{{ ns.x }}",
    "closure": "{% set ns = namespace(n=0) %}{% macro f() %}{% for a in range(1000) %}{% set ns.n = ns.n + 1 %}{% endfor %}{% endmacro %}{% for a in range(100000) %}{{ f() }}{% endfor %}",
    "sorted": "{% for a in range(1000) %}{{ range(100000)|sort|length }}{% endfor %}", "pieces": "{% for a in range(10000) %}{{ ('a ' * 100000).split()|length }}{% endfor %}",
}

# What Python refuses and we render, what prints an address, and what no template of a model has.
DIFFERENT = {
    "range(3)", "lipsum", "cycler", "joiner", "1e100|int", "strftime_now('%Q')", "x|wordcount", "x|truncate(5)", "x|urlencode", "x|pprint", "x|attr('a')",
    "x is odd", "x is even", "x is divisibleby 7", "x|map(attribute='k')|list", "x|sum(attribute='n')", "x|groupby('n')", "x < 3", "2.5 in x", "x|sort", "x|sort(reverse=true)",
    "x|sort(attribute='n')", "x|unique|list", "x|indent", "x|indent(2, true)", "x|indent(1, blank=true)", "x|min", "x|max", "x > 'a'", "x|dictsort(by='value')", "x|round(0, 'floor')",
    "+x", "x is filter", "x is lower", "x|map('string')|list", "x|abs", "x|round", "x|round(2)", "-x", "x|list", "x|join", "x|join(', ')", "x|join(d='-')", "x|sum", "x|batch(2)|list", "x|slice(2)|list",
    "x[1:]", "x[:-1]", "x[::-1]", "x[::2]", "x[1:3]|list", "x[99:]", "dict(x)", "'x'|float(2.0)",
    STATEMENTS[0], STATEMENTS[3], STATEMENTS[4], "{% block a %}in {{ x }}{% endblock %}", "{% set ns = namespace(_a=1) %}{{ ns._a }}", "{{ self }}",
    "{% autoescape true %}{{ '<' }}{% endautoescape %}", "{% for a in x|groupby('n') %}{{ a.grouper }}{{ a.list|length }}{% endfor %}",
}
