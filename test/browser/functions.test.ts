// Functions in the dashboard: how to deploy, what is deployed, where it runs and what came of that.
// Slow: it drives Chromium.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { skipBrowser } from '../support/browser.ts';
import { openDashboard, picture, type TestDashboard } from '../support/dashboard.ts';
import { deployBody, flowConfig } from '../support/functions.ts';
import { connect } from '../support/trellis.ts';

const rows = (more = '') => `${more}const { z } = require('zod');
exports.default = {
  type: 'sync', description: 'Every row of a spreadsheet, with its \`number\`.', frequency: 'every 5 minutes', autoStart: false,
  scopes: ['https://www.googleapis.com/auth/spreadsheets'],
  metadata: z.object({ spreadsheetId: z.string().optional() }),
  models: { Row: z.object({ id: z.string(), name: z.string(), count: z.int().optional() }) },
  async exec(nango) {
    await nango.log('Reading the first page');
    await nango.batchSave([{ id: '1', name: 'Ada' }, { id: '2', name: 'Grace' }], 'Row');
    await nango.log('One row has no number', { level: 'warn' });
  },
};`;
const slow = `const { z } = require('zod');
exports.default = {
  type: 'sync', description: 'Takes its time.', frequency: 'every day', autoStart: false,
  models: { Row: z.object({ id: z.string() }) },
  async exec(nango) {
    for (let page = 1; !nango.signal.aborted; page += 1) {
      await nango.log('Page ' + page);
      await new Promise((next) => setTimeout(next, 200));
    }
    throw new Error('told to end');
  },
};`;
const broken = `const { z } = require('zod');
exports.default = {
  type: 'sync', description: 'Fails.', frequency: 'every hour', autoStart: false,
  models: { Row: z.object({ id: z.string() }) },
  async exec() { const none = undefined; return none.rows; },
};`;
const shaky = `const { z } = require('zod');
exports.default = {
  type: 'sync', description: 'Meets an outage.', frequency: 'every day', autoStart: false,
  models: { Row: z.object({ id: z.string() }) },
  async exec(nango) {
    await nango.get({ endpoint: '/v4/spreadsheets/none', retries: 0 }).catch((error) => {
      if (error.response?.status !== 404) throw error;
    });
  },
};`;
const needy = `const { z } = require('zod');
exports.default = {
  type: 'sync', description: 'Wants more than was granted.', frequency: 'every hour', autoStart: false,
  scopes: ['https://www.googleapis.com/auth/calendar'],
  models: { Row: z.object({ id: z.string() }) },
  async exec() {},
};`;
const greet = `const { z } = require('zod');
exports.default = {
  type: 'action', description: 'Greets somebody as often as one likes.',
  input: z.object({ name: z.string().describe('Whom to greet'), times: z.int(), tone: z.enum(['kind', 'stern']).optional(),
    loud: z.boolean().optional(), others: z.array(z.string()).optional() }),
  output: z.object({ greetings: z.array(z.string()) }),
  async exec(nango, { name, times, loud }) {
    if (times > 9) throw new nango.ActionError({ type: 'too_often', most: 9 });
    return { greetings: Array.from({ length: times }, () => 'Hello ' + (loud ? name.toUpperCase() : name)) };
  },
};`;
const hello = `exports.default = {
  type: 'onEvent', description: 'Says hello.', event: 'post-connection-creation', async exec(nango) { await nango.log('hello'); },
};`;

describe('functions in a browser', { skip: skipBrowser }, () => {
  let dashboard: TestDashboard;
  let page: Page;
  let connectionId: string;

  before(async () => {
    dashboard = await openDashboard();
    // What is refused on purpose: calls of actions that fail, fields that do not fit, states of error, an outage.
    dashboard.expectComplaint(/40[0-9]|500|ERR_FAILED/);
    ({ page } = await dashboard.openAs('developer'));
  });
  after(() => dashboard?.close());

  const open = (path: string, on = page) => on.goto(`${dashboard.trellis.baseUrl}/app/dev${path}`);
  const deploy = async (flows: object[], more: object = {}) => {
    const body = deployBody(flows, { reconcile: false, ...more });
    const answer = await dashboard.trellis.call('POST', '/sync/deploy', { body });
    assert.equal(answer.status, 200, answer.text);
  };
  const sync = (name: string, code: string) => flowConfig({ name, code, type: 'sync', source: code });
  const act = async (name: string, item: string) => {
    await page.getByRole('button', { name: new RegExp(`^Actions for ${name} of`) }).click();
    await page.getByRole('menuitem', { name: item }).click();
  };
  const ask = async (what: 'start' | 'trigger', name: string) => {
    const body = { provider_config_key: 'google-sheet', connection_id: connectionId, syncs: [name] };
    const answer = await dashboard.trellis.call('POST', `/sync/${what}`, { body });
    assert.equal(answer.status, 200, answer.text);
  };
  const syncOf = async (name: string) => {
    const { body } = await dashboard.trellis.call('GET', `/functions/syncs?function=${name}`);
    return (body.syncs as Record<string, unknown>[])[0];
  };

  test('without functions the page shows how to deploy, with commands to copy', async () => {
    await open('/functions');
    await page.getByText('No function is deployed yet').waitFor();
    await page.getByRole('button', { name: 'Copy the commands that deploy' }).click();
    const copied = String(await page.evaluate('navigator.clipboard.readText()'));
    assert.match(copied, /TRELLIS_URL=http.*\n.*\nnpx trellis deploy \.\/functions$/);
    await picture(page, 'functions-empty');
    await page.getByRole('tab', { name: 'Runs' }).click();
    await page.getByText('No runs yet').waitFor();
    await picture(page, 'runs-empty');
  });

  test('deployed functions are listed and searched by the service, with the filters in the URL', async () => {
    ({ connectionId } = await connect(dashboard.trellis));
    await open(`/connections/google-sheet/${connectionId}?tab=syncs`);
    await page.getByText('No sync is deployed for google-sheet.').waitFor();
    await deploy([sync('rows', rows())]);
    const onEvents = [{ name: 'hello', fileBody: { js: hello }, event: 'post-connection-creation' }];
    await deploy(
      [
        sync('rows', rows('// The second version.\n')),
        sync('slow', slow),
        sync('broken', broken),
        flowConfig({ name: 'greet', code: greet, source: greet }),
      ],
      { onEventScriptsByProvider: [{ providerConfigKey: 'google-sheet', scripts: onEvents }] },
    );
    const place = { provider_config_key: 'google-sheet', connection_id: connectionId };
    await dashboard.trellis.call('POST', '/sync/trigger', { body: { ...place, syncs: ['rows', 'broken'] } });
    await open('/functions');
    await page.getByText('1 to 5 of 5').waitFor();
    const failing = page.getByRole('row').filter({ hasText: 'broken' });
    await failing.getByText('Failed', { exact: true }).filter({ visible: true }).waitFor();
    await failing.getByLabel('1 failed in 24 hours').filter({ visible: true }).waitFor();
    await picture(page, 'functions');
    await page.getByLabel('Search functions').fill('RO');
    await page.getByText('1 to 2 of 2').waitFor();
    assert.match(page.url(), /search=RO/);
    await page.reload();
    await page.getByText('1 to 2 of 2').waitFor();
    await page.getByRole('combobox', { name: 'Kind' }).click();
    await page.getByRole('option', { name: 'Action' }).click();
    await page.getByText('No match').waitFor();
    await page.getByRole('button', { name: 'Show all' }).click();
    await page.getByRole('combobox', { name: 'On or off' }).click();
    await page.getByRole('option', { name: 'Off' }).click();
    await page.getByText('No match').waitFor();
    assert.match(page.url(), /enabled=off/);
  });

  test('a function shows its declaration and its code, and an earlier version can be restored', async () => {
    await open('/functions/of/google-sheet/sync/rows');
    await page.getByRole('heading', { name: 'Model Row' }).waitFor();
    await page.getByText('https://www.googleapis.com/auth/spreadsheets').waitFor();
    await page.getByRole('cell', { name: 'whole number' }).waitFor();
    await page.locator('main code', { hasText: /^number$/ }).waitFor();
    await page.getByText('manually on each connection, then every 5 minutes').waitFor();
    await picture(page, 'function-declared');
    await page.getByRole('tab', { name: 'Code' }).click();
    await page.getByText('// The second version.').waitFor();
    await page.getByRole('button', { name: 'Copy the code' }).click();
    // Numbers of lines are drawn, not copied.
    assert.equal(await page.evaluate('navigator.clipboard.readText()'), rows('// The second version.\n'));
    await picture(page, 'function-code');
    await page.getByRole('tab', { name: 'Versions' }).click();
    await page.getByRole('link', { name: 'Code of version 1' }).click();
    await page.getByText('The current version is 2.').waitFor();
    assert.equal(await page.getByText('// The second version.').count(), 0);
    await page.goBack();
    await picture(page, 'function-versions');
    await page.getByRole('button', { name: 'Activate version 1' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Activate' }).click();
    await page.getByText('Version 1 runs from now on.').waitFor();
    await page.getByText('version 1', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Turn off' }).click();
    await page.getByText('Off: no run starts', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Turn on' }).click();
    await page.getByText('Off: no run starts', { exact: true }).waitFor({ state: 'detached' });
  });

  test('its syncs are run, started, paused, given a frequency and reset, connection by connection', async () => {
    await open('/functions/of/google-sheet/sync/rows?tab=syncs');
    await page.getByText('1 in all: 1 paused').waitFor();
    await act('rows', 'Start');
    await page.getByText('On time').filter({ visible: true }).waitFor();
    assert.ok((await syncOf('rows'))?.next_at);
    await act('rows', 'Change the frequency');
    await page.getByLabel('Frequency').fill('every second');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('is too often').waitFor();
    await page.getByRole('button', { name: 'every 6 hours' }).click();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('its own frequency', { exact: true }).waitFor();
    assert.equal((await syncOf('rows'))?.own_frequency, '6h');
    await picture(page, 'function-syncs');
    await act('rows', 'Reset');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page
      .getByRole('button', { name: /^Actions for rows of/ })
      .and(page.locator(':focus'))
      .waitFor();
    await act('rows', 'Reset');
    await page.getByLabel('Also remove the records').check();
    await picture(page, 'function-reset');
    await page.getByRole('button', { name: 'Reset and remove records' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await act('rows', 'Pause');
    await page.getByText('1 in all: 1 paused').waitFor();
    await page.getByLabel('Connection ID').fill('nobody');
    await page.getByText('No match').waitFor();
    assert.match(page.url(), /connection=nobody/);
  });

  test('a failed run shows the cause, the line of code and the next step', async () => {
    await open('/functions?tab=runs');
    await page.getByRole('combobox', { name: 'State' }).click();
    await page.getByRole('option', { name: 'Failed' }).click();
    await page.getByText(/function_threw/).waitFor();
    await picture(page, 'runs');
    await page.getByRole('link', { name: 'broken' }).click();
    await page.getByText('The code threw an error').waitFor();
    await page.getByLabel('Stack').waitFor();
    await page.getByText('The run saved no records.').waitFor();
    await picture(page, 'run-failed');
    await page.getByRole('link', { name: 'Open the code' }).click();
    await page.getByText("description: 'Fails.'").waitFor();
  });

  test('a run is followed live, line by line, and cancelled', async () => {
    await open(`/connections/google-sheet/${connectionId}?tab=syncs`);
    const card = page.getByRole('region', { name: 'Syncs' });
    await card.getByText('Not started').waitFor();
    await picture(page, 'connection-syncs');
    await act('slow', 'Run now');
    await card.getByRole('link', { name: 'Running' }).click();
    await page.getByText('Page 2', { exact: true }).waitFor();
    await page.getByText('Page 9', { exact: true }).waitFor();
    await picture(page, 'run-live');
    // What is missed while the service cannot be reached comes when it can.
    const isRun = (url: URL) => url.pathname.startsWith('/functions/runs/');
    await page.route(isRun, (route) => route.abort());
    await page.getByText('The service cannot be reached').first().waitFor();
    assert.equal(await page.getByText('Live', { exact: true }).count(), 0);
    await page.unroute(isRun);
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Run again' }).waitFor();
    await page
      .getByRole('alert')
      .getByText(/^cancelled · /)
      .waitFor();
    assert.equal(await page.getByText('Live').count(), 0);
  });

  test('a run that went well shows what it changed, and can be run again', async () => {
    await open('/functions/of/google-sheet/sync/rows?tab=runs&state=succeeded');
    await page.getByRole('link', { name: 'ada@example.com' }).first().click();
    const changes = page.getByRole('region', { name: 'Records' });
    await changes.getByRole('link', { name: 'Row' }).waitFor();
    await changes.getByText(/^(2 added|2 unchanged)$/).waitFor();
    assert.equal(await page.getByText('1 of 3', { exact: true }).count(), 0);
    await page.getByText('One row has no number').waitFor();
    const calls = page.getByRole('list', { name: 'Calls of the run' }).getByRole('listitem');
    await calls.filter({ hasText: 'Save 2 of Row' }).waitFor();
    await page.getByRole('region', { name: 'Last runs' }).getByRole('img').nth(1).waitFor();
    await picture(page, 'run-succeeded');
    const log = page.getByRole('region', { name: 'Log' });
    await log.getByRole('textbox', { name: 'Search the log' }).fill('has no number');
    await log.getByText(/^1 of \d+ lines?$/).waitFor();
    await picture(page, 'run-log-searched');
    await log.getByRole('button', { name: 'Copy the log' }).click();
    const copied = String(await page.evaluate('navigator.clipboard.readText()'));
    assert.match(copied, /^\S+ \w+ One row has no number$/);
    await log.getByRole('textbox', { name: 'Search the log' }).fill('nowhere');
    await log.getByText('No line matches.').waitFor();
    const former = page.url();
    await page.getByRole('button', { name: 'Run again' }).click();
    await page.waitForURL((url) => url.href !== former);
    await page.getByText('One row has no number').waitFor();
    await changes.getByRole('link', { name: 'Row' }).click();
    await page.waitForURL(/\/records\/of\/google-sheet\/.*\/Row$/);
  });

  test('a run after an outage waits for its second attempt, and shows the outcome of the first', async () => {
    await deploy([sync('shaky', shaky)]);
    await dashboard.trellis.control('POST', 'faults', { case: 'api_503', times: 1 });
    await ask('trigger', 'shaky');
    await open('/functions?tab=runs&function=shaky');
    await page.getByRole('link', { name: 'shaky' }).click();
    await page.getByText('Waiting for attempt 2').waitFor();
    await page.getByText('1 of 3', { exact: true }).waitFor();
    await dashboard.trellis.db.query(
      "update run set not_before = now() where state = 'waiting' and attempt = 1",
      [],
    );
    const timeline = page.getByRole('region', { name: 'Timeline' });
    await timeline.getByText('Attempt 1 ended').waitFor();
    await timeline.getByText('Attempt 2 began').waitFor();
    await timeline.getByText('Succeeded').waitFor();
    await page.getByText('2 of 3', { exact: true }).waitFor();
    // Both attempts have called the provider: an outage, then an unknown spreadsheet.
    const calls = page.getByRole('list', { name: 'Calls of the run' }).getByRole('listitem');
    await calls.nth(1).waitFor();
    assert.equal(await calls.count(), 2);
    assert.match(await calls.first().innerText(), /^503 GET \/v4\/spreadsheets\/none/);
    await picture(page, 'run-calls');
  });

  test('a sync that cannot start shows what it waits for', async () => {
    await deploy([sync('needy', needy)]);
    await ask('start', 'needy');
    await ask('trigger', 'needy');
    await open('/functions/of/google-sheet/sync/needy?tab=syncs');
    await page.getByText('1 in all: 1 held').waitFor();
    await page
      .getByText(/auth\/calendar/)
      .filter({ visible: true })
      .first()
      .waitFor();
    assert.equal((await syncOf('needy'))?.state, 'held');
  });

  test('an action is called by a form or with JSON, and its answer or its error shown', async () => {
    await open('/functions/of/google-sheet/action/greet?tab=try');
    await page.getByLabel('times').fill('many');
    await page.getByRole('button', { name: 'Call' }).click();
    await page.getByText('Not a number').waitFor();
    await page.getByLabel('times').fill('2');
    await page.getByLabel('name').fill('Ada');
    await page.getByLabel('loud').check();
    await page.getByRole('button', { name: 'Call' }).click();
    await page.getByRole('region', { name: 'Output' }).getByText('Hello ADA').waitFor();
    await picture(page, 'action-answered');
    await page.getByText('JSON', { exact: true }).click();
    const json = page.getByLabel('Input as JSON');
    assert.deepEqual(JSON.parse(await json.inputValue()), { name: 'Ada', times: 2, loud: true });
    await json.fill('{"name": "Ada", "times": 10}');
    await page.getByRole('button', { name: 'Call' }).click();
    await page.getByRole('alert').getByText('action_script_runtime_error').waitFor();
    await page.getByText('"most": 9').waitFor();
    await picture(page, 'action-failed');
    await json.fill('{"name": 1}');
    await page.getByRole('button', { name: 'Call' }).click();
    await page.getByText('input.name').waitFor();
  });

  test('the palette finds a function by its name', async () => {
    await page.keyboard.press('Control+k');
    await page.getByPlaceholder(/functions/).fill('greet');
    await page.getByRole('button', { name: /greet.*Action of google-sheet/s }).waitFor();
    await page.keyboard.press('Escape');
  });

  test('a viewer sees it all but inputs and outputs, and is offered nothing to change', async () => {
    const { page: viewer } = await dashboard.openAs('viewer');
    const offers = /^(Turn off|Remove|Actions for|Activate|Call$|Run again|Cancel)/;
    for (const [path, seen] of [
      ['/functions/of/google-sheet/sync/rows?tab=syncs', '1 in all: 1 paused'],
      ['/functions/of/google-sheet/sync/rows?tab=versions', 'Current'],
      ['/functions/of/google-sheet/action/greet?tab=try', 'Viewers cannot call actions'],
      [`/connections/google-sheet/${connectionId}?tab=syncs`, 'slow'],
    ] as const) {
      await open(path, viewer);
      await viewer.getByText(seen, { exact: true }).first().waitFor();
      assert.equal(await viewer.getByRole('button', { name: offers }).count(), 0, path);
    }
    await open('/functions?tab=runs&state=failed', viewer);
    await viewer.getByRole('link', { name: 'broken' }).click();
    await viewer.getByText('The code threw an error').waitFor();
    assert.equal(await viewer.getByLabel('Stack').count(), 0);
  });

  test('while they load, and when they are refused, pages say so', async () => {
    const { body } = await dashboard.trellis.call('GET', '/functions/runs?function=broken');
    const [run] = body.runs as { id: string }[];
    const states: { name: string; path: string; asks: RegExp; heading: string }[] = [
      { name: 'functions', path: '/functions', asks: /\/functions\?/, heading: 'Functions' },
      { name: 'runs', path: '/functions?tab=runs', asks: /\/functions\/runs\?/, heading: 'Functions' },
      {
        name: 'function',
        path: '/functions/of/google-sheet/sync/rows',
        asks: /\/functions\/rows\?/,
        heading: 'rows',
      },
      {
        name: 'run',
        path: `/functions/runs/${run!.id}`,
        asks: /\/functions\/runs\/[^?]+$/,
        heading: 'Run',
      },
    ];
    for (const { name, path, asks, heading } of states) {
      const isApi = (url: URL) => !url.pathname.startsWith('/app') && asks.test(url.pathname + url.search);
      await page.route(isApi, () => undefined);
      await open(path);
      await page.getByRole('heading', { name: heading, exact: true }).waitFor();
      await page.getByRole('status', { name: 'Loading' }).first().waitFor();
      if (name !== 'runs') await picture(page, `${name}-loading`);
      await page.goto('about:blank');
      await page.unroute(isApi);
      await page.route(isApi, (route) =>
        route.fulfill({
          status: 403,
          headers: { 'content-type': 'application/json', 'x-request-id': 'req-4711' },
          body: '{"error":{"code":"forbidden","message":"The service has refused."}}',
        }),
      );
      await open(path);
      await page.getByText('forbidden · req-4711').first().waitFor();
      if (name !== 'runs') await picture(page, `${name}-error`);
      await Promise.all([
        page.waitForRequest((request) => isApi(new URL(request.url()))),
        page.getByRole('button', { name: 'Try again' }).first().click(),
      ]);
      await page.unroute(isApi);
      await page.reload();
      await page.getByRole('status', { name: 'Loading' }).first().waitFor({ state: 'detached' });
      assert.equal(await page.getByText('The service has refused.').count(), 0, name);
    }
  });

  test('a removal names what it deletes, and deletes it', async () => {
    await open('/functions/of/google-sheet/sync/rows');
    await page.getByRole('button', { name: 'Remove' }).click();
    await page.getByText('its code, in 2 versions').waitFor();
    await page.getByText('1 schedule of connections, with their checkpoints').waitFor();
    await picture(page, 'function-remove');
    await page.getByRole('button', { name: 'Remove permanently' }).click();
    await page.getByText('1 to 6 of 6').waitFor();
  });
});
