# ruff: noqa: E501 (a line break inside a template would be part of it)
"""Chat templates in the style of the families that Headroom names: what each asks of the renderer, in few lines."""

from dataclasses import dataclass, field
from typing import Any

LLAMA_2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{% set system = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}
{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] if loop.index0 == 0 and system != false
   else message['content'] %}
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}"""

LLAMA_3_1 = """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}{{- "You have access to these functions" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{%- endfor %}{%- endif %}
{{- system_message }}{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""
LLAMA_3_2 = LLAMA_3_1.replace(
    '{%- set date_string = "26 Jul 2024" %}',
    '{%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}'
    '{%- else %}{%- set date_string = "1 Jan 1970" %}{%- endif %}',
)


MISTRAL_V3 = """{%- if messages[0]["role"] == "system" %}{%- set system_message = messages[0]["content"] %}
{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}{%- for tool in tools %}{{- tool.function | tojson }}{%- endfor %}
            {{- "][/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"]|trim + eos_token}}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported") }}{%- endif %}
{%- endfor %}
"""

QWEN_3 = """{%- if tools %}{{- raise_exception('tools') }}{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}{%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}{{- '<|im_start|>' + message.role + '\\n' + content }}{%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

GEMMA_2 = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}
{{- '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""

GEMMA_3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}{%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}{%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}{%- set first_user_prefix = "" -%}{%- set loop_messages = messages -%}{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception("roles must alternate") }}{%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ image_token if item['type'] == 'image' else item['text'] | trim }}{%- endfor -%}
    {%- else -%}{{ raise_exception("Invalid content type") }}{%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model
'}}{%- endif -%}"""

GRANITE_3 = """{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set system_message = "Knowledge Cutoff Date: April 2024.\\nToday's Date: " + strftime_now('%B %d, %Y') + ".\\nYou are Granite." %}
    {%- if tools and documents %}{%- set system_message = system_message + " Tools and documents." %}
    {%- elif tools %}{%- set system_message = system_message + " Tools." %}
    {%- elif documents %}{%- set system_message = system_message + " Documents." %}
    {%- elif thinking %}{%- set system_message = system_message + " Think first." %}
    {%- else %}{%- set system_message = system_message + "" %}{%- endif %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\\n' }}
{%- if documents is not none %}{{- '<|start_of_role|>documents<|end_of_role|>' }}
    {%- for document in documents %}{{- 'Document ' + loop.index | string + '\\n' + document['text'] }}{%- endfor %}
    {{- '<|end_of_text|>\\n' }}{%- endif %}
{%- for message in loop_messages %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>\\n' }}
    {%- if loop.last and add_generation_prompt %}{{- '<|start_of_role|>assistant' }}
        {%- if controls %}{{- ' ' + controls | tojson() }}{%- endif %}{{- '<|end_of_role|>' }}
    {%- endif %}
{%- endfor %}"""


SMOLLM_3 = """{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- if enable_thinking -%}{%- set reasoning_mode = "/think" -%}{%- else -%}{%- set reasoning_mode = "/no_think" -%}{%- endif -%}
{{- "<|im_start|>system\\n" -}}
{%- if messages[0].role == "system" -%}
    {%- set system_message = messages[0].content -%}
    {%- if "/no_think" in system_message -%}{%- set reasoning_mode = "/no_think" -%}{%- endif -%}
    {%- set custom_instructions = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{%- set today = strftime_now("%d %B %Y") -%}
{{- "## Metadata\\n\\nToday Date: " ~ today ~ "\\nReasoning Mode: " + reasoning_mode + "\\n\\n" -}}
{%- if custom_instructions -%}{{- custom_instructions + "\\n\\n" -}}{%- endif -%}
{%- if xml_tools or python_tools or tools -%}{{- "### Tools\\n" -}}
    {%- for tool in (xml_tools or tools) | map("string") -%}{{- tool -}}{%- endfor -%}{%- endif -%}
{{- "<|im_end|>\\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}{{ "<|im_start|>" + message.role + "\\n" + content + "<|im_end|>\\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}{% set said = content.lstrip("\\n") %}
        {%- if reasoning_mode == "/think" -%}{{ "<|im_start|>assistant\\n" + said + "<|im_end|>\\n" }}
        {%- else -%}{{ "<|im_start|>assistant\\n<think>\\n\\n</think>\\n" + said + "<|im_end|>\\n" }}{%- endif -%}
        {% endgeneration %}{{ said }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|im_start|>assistant\\n" if reasoning_mode == "/think" else "<|im_start|>assistant\\n<think>\\n\\n</think>\\n" -}}
{%- endif -%}"""


OLMO_3 = """{%- set has_system = messages|selectattr('role', 'equalto', 'system')|list|length > 0 -%}
{%- if not has_system -%}{{- '<|im_start|>system\\nYou are Olmo. ' -}}
    {%- if tools is none -%}{{- 'You do not currently have access to any functions. <functions></functions>' -}}
    {%- else -%}{{- '<functions>' -}}{{- tools | tojson -}}{{- '</functions>' -}}{%- endif -%}{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message['role'] == 'system' -%}
        {{- '<|im_start|>system\\n' + message['content'] -}}
        {%- if tools is not none -%}{{- '<functions>' + (tools | tojson) + '</functions>' -}}
        {%- elif message.get('functions', none) is not none -%}{{- message['functions'] -}}{%- endif -%}{{- '<|im_end|>\\n' -}}
    {%- elif message['role'] in ['user', 'assistant'] -%}
        {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + ('<|im_end|>\\n' if not loop.last else eos_token) -}}
    {%- endif -%}
    {%- if loop.last and add_generation_prompt -%}{{- '<|im_start|>assistant\\n<think>' -}}{%- endif -%}
{%- endfor -%}"""

COMMAND_R = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{%- set system_message = messages[0]['content'] %}{% elif false == true %}{% set loop_messages = messages %}
{%- set system_message = 'You are Command-R.' %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}
{%- if documents is not none %}{{ '<results>' }}{% for document in documents %}{{ 'Document: ' ~ loop.index0 }}
{%- for key, value in document.items() %}{{ key }}: {{ value }}{% endfor %}{% endfor %}{{ '</results>' }}{% endif %}
{%- if system_message != false %}{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system_message + '<|END_OF_TURN_TOKEN|>' }}{% endif %}
{%- for message in loop_messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- set content = message['content'] %}
{%- if message['role'] == 'user' %}{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}
{%- elif message['role'] == 'assistant' %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'  + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}"""


FALCON = """{% for message in messages %}{% if not loop.first %}{{ '\\n' }}{% endif %}
{%- if message['role'] == 'system' %}{{ message['content'] }}
{%- elif message['role'] == 'user' %}{{ 'User: ' + message['content'] | replace('\\r\\n', '\\n') | replace('\\n\\n', '\\n') }}
{%- elif message['role'] == 'assistant' %}{{ 'Falcon: ' + message['content'] }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '\\nFalcon:' }}{% endif %}"""


@dataclass(frozen=True)
class Style:
    """A template in the style of one family.

    model_type: of config.json
    template: in jinja's language
    settings: what tokenizer_config.json says
    """

    model_type: str
    template: str
    settings: dict[str, Any] = field(default_factory=dict)


def _added(content: str) -> dict[str, Any]:
    return {"__type": "AddedToken", "content": content, "lstrip": False, "normalized": False, "rstrip": False}


S = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
LLAMA_3 = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
FAST, END = {"tokenizer_class": "PreTrainedTokenizerFast"}, "<|endoftext|>"
STYLES = {
    "llama 2": Style("llama", LLAMA_2, {name: _added(token) for name, token in S.items()} | {"pad_token": None}),
    "llama 3.1": Style("llama", LLAMA_3_1, FAST | LLAMA_3),
    "llama 3.2": Style("llama", LLAMA_3_2, FAST | LLAMA_3),
    "mistral v3": Style("mistral", MISTRAL_V3, {"tokenizer_class": "LlamaTokenizerFast", **S}),
    "qwen 3": Style("qwen3", QWEN_3, {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}),
    "gemma 2": Style("gemma2", GEMMA_2),  # its class says which tokens it has
    "gemma 3": Style("gemma3_text", GEMMA_3, {
        "tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "image_token": "<image_soft_token>",
        "extra_special_tokens": {"boi_token": "<start_of_image>"}}),
    "granite 3": Style("granite", GRANITE_3, {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|end_of_text|>"}),
    "smollm 3": Style("smollm3", SMOLLM_3, {**FAST, "bos_token": None, "eos_token": "<|im_end|>"}),
    "olmo 3": Style("olmo3", OLMO_3, {"tokenizer_class": "GPT2Tokenizer", "bos_token": END, "eos_token": END}),
    "command r": Style("cohere", COMMAND_R, {"tokenizer_class": "CohereTokenizerFast", "unk_token": None}),
    "falcon": Style("falcon", FALCON, FAST | {"eos_token": END}),
}  # fmt: skip
_USER, _ANSWER = (
    {"role": "user", "content": "Wo liegt “Oslo” <b>?</b>\n\n "},
    {"role": "assistant", "content": " in 挪威 "},
)
_SYSTEM = {"role": "system", "content": "Be brief. 🙂 /no_think"}
_LAST = {"role": "user", "content": "</think> {{ 2 & 3 }}"}
CONVERSATIONS = [
    [_USER], [_SYSTEM, _USER], [_USER, _ANSWER, _LAST], [_SYSTEM, _USER, _ANSWER, _LAST],
    [_USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nJa"}, _LAST], [_USER, _USER],
]  # fmt: skip
