/** A call to the service, without its key. */
export type ServiceCall = {
  method: string;
  url: string;
  headers: [name: string, value: string][];
  body?: string;
};

/** The environment variable of the secret key, as the command line reads it. The key is never in copied code. */
export const keyVariable = 'TRELLIS_SECRET_KEY';

/** Sends JSON to this service. */
export function postCall(path: string, body: object, headers: ServiceCall['headers'] = []): ServiceCall {
  return {
    method: 'POST',
    url: location.origin + path,
    headers: [...headers, ['Content-Type', 'application/json']],
    body: JSON.stringify(body),
  };
}

/** The headers that name a connection. */
export function connectionHeaders(at: { integration: string; id: string }): [string, string][] {
  return [
    ['Integration-Id', at.integration],
    ['Connection-Id', at.id],
  ];
}

/** The code of a call by language. It runs as it is, with the key in the environment, and needs no package. */
export const codeOf = { curl, JavaScript: javaScript, Python: python, Go: go, PHP: php };
export type Language = keyof typeof codeOf;
export const languages = Object.keys(codeOf) as Language[];

/** For a POSIX shell. */
function curl({ method, url, headers, body }: ServiceCall): string {
  const flag = method === 'HEAD' ? ' -I' : method === 'GET' ? '' : ` -X ${method}`;
  const lines = [
    // Without -g, curl expands {} and [] in an address.
    `curl -g${flag} ${shellText(url)}`,
    `-H "Authorization: Bearer $${keyVariable}"`,
    ...headers.map(([name, value]) => `-H ${shellText(`${name}: ${value}`)}`),
    ...(body === undefined ? [] : [`--data-raw ${shellText(body)}`]),
  ];
  return lines.join(' \\\n  ');
}

/** For Node and other servers: a key must not be in a browser. */
function javaScript({ method, url, headers, body }: ServiceCall): string {
  return [
    `const response = await fetch(${quoted(url)}, {`,
    ...(method === 'GET' ? [] : [`  method: ${quoted(method)},`]),
    '  headers: {',
    `    Authorization: \`Bearer \${process.env.${keyVariable}}\`,`,
    ...headers.map(([name, value]) => `    ${quoted(name)}: ${quoted(value)},`),
    '  },',
    ...(body === undefined ? [] : [`  body: ${javaScriptBody(body, headers)},`]),
    '});',
    'console.log(response.status, await response.text());',
  ].join('\n');
}

function javaScriptBody(body: string, headers: ServiceCall['headers']): string {
  const isJson = headers.some(([name, value]) => /^content-type$/i.test(name) && /\bjson\b/i.test(value));
  if (!isJson) return quoted(body);
  return `JSON.stringify(${JSON.stringify(JSON.parse(body), null, 2).replaceAll('\n', '\n  ')})`;
}

function python({ method, url, headers, body }: ServiceCall): string {
  return [
    'import os',
    'import urllib.request',
    '',
    'request = urllib.request.Request(',
    `    ${quoted(url)},`,
    `    method=${quoted(method)},`,
    '    headers={',
    `        "Authorization": "Bearer " + os.environ["${keyVariable}"],`,
    ...headers.map(([name, value]) => `        ${quoted(name)}: ${quoted(value)},`),
    '    },',
    ...(body === undefined
      ? []
      : [`    data=${isPlain(body, "'''", '\\') ? `'''${body}'''` : quoted(body)}.encode(),`]),
    ')',
    'with urllib.request.urlopen(request) as response:',
    '    print(response.status, response.read().decode())',
  ].join('\n');
}

function go({ method, url, headers, body }: ServiceCall): string {
  const check = ['\tif err != nil {', '\t\tlog.Fatal(err)', '\t}'];
  const text = body === undefined || !isPlain(body, '`') ? quoted(body ?? '') : `\`${body}\``;
  return [
    'package main',
    '',
    'import (',
    ...['fmt', 'io', 'log', 'net/http', 'os', ...(body === undefined ? [] : ['strings'])].map(
      (name) => `\t"${name}"`,
    ),
    ')',
    '',
    'func main() {',
    `\trequest, err := http.NewRequest(${quoted(method)}, ${quoted(url)}, ${body === undefined ? 'nil' : `strings.NewReader(${text})`})`,
    ...check,
    `\trequest.Header.Add("Authorization", "Bearer "+os.Getenv("${keyVariable}"))`,
    ...headers.map(([name, value]) => `\trequest.Header.Add(${quoted(name)}, ${quoted(value)})`),
    '\tresponse, err := http.DefaultClient.Do(request)',
    ...check,
    '\tdefer response.Body.Close()',
    '\tbody, err := io.ReadAll(response.Body)',
    ...check,
    '\tfmt.Println(response.StatusCode, string(body))',
    '}',
  ].join('\n');
}

function php({ method, url, headers, body }: ServiceCall): string {
  return [
    '<?php',
    `$curl = curl_init(${phpText(url)});`,
    'curl_setopt_array($curl, [',
    ...(method === 'HEAD'
      ? ['    CURLOPT_NOBODY => true,']
      : method === 'GET'
        ? []
        : [`    CURLOPT_CUSTOMREQUEST => ${phpText(method)},`]),
    '    CURLOPT_HTTPHEADER => [',
    `        'Authorization: Bearer ' . getenv('${keyVariable}'),`,
    ...headers.map(([name, value]) => `        ${phpText(`${name}: ${value}`)},`),
    '    ],',
    ...(body === undefined ? [] : [`    CURLOPT_POSTFIELDS => ${phpText(body)},`]),
    '    CURLOPT_RETURNTRANSFER => true,',
    ']);',
    '$body = curl_exec($curl);',
    "echo curl_getinfo($curl, CURLINFO_RESPONSE_CODE), ' ', $body, PHP_EOL;",
  ].join('\n');
}

/** A literal of JavaScript, Python and Go: their escapes include those of JSON. */
function quoted(text: string): string {
  return JSON.stringify(text);
}

/** Whether a text can stand between `quotes` unchanged, over several lines. */
function isPlain(text: string, quotes: string, toEscape?: string): boolean {
  // The languages change line ends with \r, and a quote at the end would join the closing ones.
  const odd = [quotes, '\r', '\0', ...(toEscape === undefined ? [] : [toEscape])];
  return !odd.some((part) => text.includes(part)) && !text.endsWith(quotes.charAt(0));
}

/** One argument of a shell, whatever it contains. */
function shellText(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function phpText(text: string): string {
  return `'${text.replace(/[\\']/g, '\\$&')}'`;
}
