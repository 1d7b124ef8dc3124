/** What is sent behind the set-up of a page's program, for each row of its table of repeated calls. */
export type Repeats = {
  /** Of the program whose set-up it takes. */
  heading: string;
  read: string;
  append: string;
};

const google = {
  heading: '@googleapis/sheets',
  read: "await spreadsheets.values.get({ spreadsheetId: SHEET, range: 'cities' });",
  append: `await spreadsheets.values.append({
    ...{ spreadsheetId: SHEET, range: 'cities', valueInputOption: 'RAW' },
    requestBody: { values: [[10, 'Paris']] },
  });`,
};
const byRow = {
  heading: 'google-spreadsheet',
  read: 'await doc.loadInfo();',
  append: "await doc.addSheet({ title: 'notes' });",
};
const python = {
  heading: 'google-api-python-client',
  read: 'spreadsheets.values().get(spreadsheetId=SHEET, range="cities").execute()',
  append: `row = {"values": [[10, "Paris"]]}
append = spreadsheets.values().append(spreadsheetId=SHEET, range="cities", valueInputOption="RAW", body=row)
append.execute()`,
};

/** The same calls by a new client with another option. */
const googleWith = (option: string) => {
  const again = `const again = sheetsApi({ version: 'v4', auth: account, rootUrl: TRELLIS_URL, ${option},
    headers: { 'Connection-Id': CONN, 'Provider-Config-Key': 'google-sheet' } });\n`;
  const by = (call: string) => again + call.replace('spreadsheets.', 'again.spreadsheets.');
  return { ...google, read: by(google.read), append: by(google.append) };
};
const byRowWith = (option: string) => {
  const before = `doc.sheetsApi = doc.sheetsApi.extend({ ${option} });\n`;
  return { ...byRow, read: before + byRow.read, append: before + byRow.append };
};
const pythonWith = (argument: string) => {
  const by = (call: string) => call.replace('.execute()', `.execute(${argument})`);
  return { ...python, read: by(python.read), append: by(python.append) };
};

export const repeats = {
  '`fetch`, `connection.fetch`': {
    heading: 'By @trellis-run/client',
    read: `const answer = await connection.fetch(\`/v4/spreadsheets/\${SHEET}/values/cities\`);
      if (!answer.ok) throw new Error();`,
    append: `const answer = await connection.fetch(
      \`/v4/spreadsheets/\${SHEET}/values/cities:append?valueInputOption=RAW\`,
      { method: 'POST', body: JSON.stringify({ values: [[10, 'Paris']] }),
        headers: { 'content-type': 'application/json' } },
    );
    if (!answer.ok) throw new Error();`,
  },
  '`@googleapis/sheets`': google,
  '`@googleapis/sheets` with `retry: false`': googleWith('retry: false'),
  '`google-spreadsheet`': byRow,
  '`google-spreadsheet` with `retry: 0`': byRowWith('retry: 0'),
  '`google-api-python-client`': python,
  '`google-api-python-client` with `execute(num_retries=2)`': pythonWith('num_retries=2'),
  '`gspread`': {
    heading: 'gspread',
    read: 'client.http_client.values_get(SHEET, "cities")',
    append: `row = {"values": [[10, "Paris"]]}
client.http_client.values_append(SHEET, "cities", {"valueInputOption": "RAW"}, row)`,
  },
} satisfies Record<string, Repeats>;

/** One after the other, each telling whether it is done or has failed. */
export function bothTried({ read, append }: Repeats, language: 'js' | 'python'): string {
  if (language === 'js') {
    const each = [read, append].map((code) => `async () => {\n${code}\n}`);
    return `for (const run of [${each.join(', ')}])
      await run().then(() => console.log('done'), () => console.log('failed'));`;
  }
  const indented = (code: string) => code.replaceAll(/^/gm, '    ');
  return `def read():
${indented(read)}
def append_row():
${indented(append)}
for run in (read, append_row):
    try:
        run()
        print("done")
    except Exception:
        print("failed")`;
}
