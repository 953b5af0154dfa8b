"""The chat template shipped in the model file (Jinja, as chat front ends run it)."""

TOOLS_BEFORE = "# Tools\n\nYou can call these functions:\n<tools>\n"
TOOLS_AFTER = (
    "\n</tools>\n\nTo call a function, answer with:\n<tool_call>\n<function=NAME>\n<parameter=PARAMETER>\nVALUE\n"
    "</parameter>\n</function>\n</tool_call>"
)

_QUOTED = {name: value.replace("\n", "\\n") for name, value in (("B", TOOLS_BEFORE), ("A", TOOLS_AFTER))}

CHAT_TEMPLATE = (
    """{%- set system = messages[0].content if messages and messages[0].role == 'system' else '' -%}
{%- set turns = messages[1:] if messages and messages[0].role == 'system' else messages -%}
{%- if tools -%}
{%- set listed -%}
{%- for tool in tools -%}{{ tool | tojson }}{{ '' if loop.last else '\\n' }}{%- endfor -%}
{%- endset -%}
{%- set system = (system + '\\n\\n' if system else '') + '"""
    + _QUOTED["B"]
    + "' + listed + '"
    + _QUOTED["A"]
    + """' -%}
{%- endif -%}
{%- if system -%}{{ '<|im_start|>system\\n' + system + '<|im_end|>\\n' }}{%- endif -%}
{%- set found = namespace(query=-1) -%}
{%- for message in turns -%}{%- if message.role == 'user' -%}{%- set found.query = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in turns -%}
{%- set content = message.content if message.content else '' -%}
{%- if content is not string -%}
{%- set joined = namespace(text='') -%}
{%- for part in content -%}{%- if part.text is defined -%}{%- set joined.text = joined.text + part.text -%}{%- endif -%}
{%- endfor -%}
{%- set content = joined.text -%}
{%- endif -%}
{%- if message.role == 'tool' -%}
{%- if loop.first or loop.previtem.role != 'tool' -%}{{ '<|im_start|>user' }}{%- endif -%}
{{ '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' -%}{{ '<|im_end|>\\n' }}{%- endif -%}
{%- else -%}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' and loop.index0 > found.query -%}
{{ '<think>\\n' + (message.reasoning_content if message.reasoning_content else '') + '\\n</think>\\n\\n' }}
{%- endif -%}
{{ content }}
{%- if message.tool_calls -%}
{%- if content -%}{{ '\\n\\n' }}{%- endif -%}
{%- for call in message.tool_calls -%}
{%- set function = call.function if call.function is defined else call -%}
{{ '<tool_call>\\n<function=' + function.name + '>\\n' }}
{%- for name, value in function.arguments | items -%}
{{ '<parameter=' + name + '>\\n' + (value if value is string else value | tojson) + '\\n</parameter>\\n' }}
{%- endfor -%}
{{ '</function>\\n</tool_call>' + ('' if loop.last else '\\n') }}
{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{%- set closed = '' if enable_thinking is defined and enable_thinking else '\\n</think>\\n\\n' -%}
{{ '<|im_start|>assistant\\n<think>\\n' + closed }}
{%- endif -%}"""
)
