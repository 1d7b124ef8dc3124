import { ControlError } from '../control/answer.ts';
import type { ControlParts } from '../control/parts.ts';
import { controlRoutes } from '../control/routes.ts';
import type { Incoming } from '../http.ts';

/** The control route of a form, how the body or query is built, and the section of the page. */
interface FormAction {
  route: string;
  section: string;
  body?: (form: URLSearchParams) => object;
  query?: (form: URLSearchParams) => Record<string, string>;
}

const forms: Record<string, FormAction> = {
  advance: {
    route: 'POST /clock',
    section: 'clock',
    body: (form) => ({ advance_s: number(form, 'hours') * 3600 }),
  },
  fault: {
    route: 'POST /faults',
    section: 'faults',
    body: (form) => ({
      case: text(form, 'case') ?? '',
      account: text(form, 'account'),
      client_id: text(form, 'client_id'),
      times: optionalNumber(form, 'times'),
      delay_ms: optionalNumber(form, 'delay_ms'),
    }),
  },
  clear: { route: 'DELETE /faults', section: 'faults', query: (form) => ({ id: text(form, 'id') ?? '' }) },
  clear_all: { route: 'DELETE /faults', section: 'faults', query: () => ({}) },
  add_account: {
    route: 'POST /accounts',
    section: 'accounts',
    body: (form) => ({
      email: text(form, 'email') ?? '',
      name: text(form, 'name'),
      hosted_domain: text(form, 'hosted_domain'),
    }),
  },
  standing: {
    route: 'POST /accounts',
    section: 'accounts',
    body: (form) => ({ email: text(form, 'account') ?? '', standing: text(form, 'standing') }),
  },
  session: {
    route: 'POST /accounts',
    section: 'accounts',
    body: (form) => ({
      email: text(form, 'account') ?? '',
      session_s: text(form, 'hours') === undefined ? null : Math.round(number(form, 'hours') * 3600),
    }),
  },
  password: {
    route: 'POST /password',
    section: 'accounts',
    body: (form) => ({ account: text(form, 'account') ?? '' }),
  },
  purge: {
    route: 'DELETE /accounts',
    section: 'accounts',
    query: (form) => ({ account: text(form, 'account') ?? '' }),
  },
  revoke: {
    route: 'POST /revoke',
    section: 'grants',
    body: (form) => ({ account: text(form, 'account') ?? '', project_number: text(form, 'project_number') }),
  },
  project: {
    route: 'POST /projects',
    section: 'apps',
    body: (form) => ({
      project_number: text(form, 'project_number') ?? '',
      publishing: text(form, 'publishing'),
      audience: text(form, 'audience'),
      domain: text(form, 'domain') ?? null,
      test_users: (form.get('test_users') ?? '').split(/[\s,;]+/).filter((email) => email !== ''),
    }),
  },
  damage: {
    route: 'POST /spreadsheets/damage',
    section: 'spreadsheets',
    body: (form) => ({ spreadsheet_id: text(form, 'spreadsheet_id') ?? '', damage: text(form, 'damage') }),
  },
};

/** Calls the control route of a posted form; returns the section to show. Throws `ControlError`. */
export async function submitForm(
  form: URLSearchParams,
  at: { request: Incoming; parts: ControlParts },
): Promise<string> {
  const name = form.get('act') ?? '';
  const act = Object.hasOwn(forms, name) ? forms[name] : undefined;
  if (act === undefined) throw new ControlError(400, 'invalid_body', 'act: is not a known form');
  await controlRoutes[act.route]!(
    {
      ...at.request,
      body: Buffer.from(JSON.stringify(act.body?.(form) ?? {})),
      query: new URLSearchParams(act.query?.(form)),
    },
    at.parts,
  );
  return act.section;
}

function text(form: URLSearchParams, name: string): string | undefined {
  return form.get(name)?.trim() || undefined;
}

function number(form: URLSearchParams, name: string): number {
  const value = Number(text(form, name));
  if (!Number.isFinite(value) || value <= 0)
    throw new ControlError(400, 'invalid_body', `${name}: must be a number above 0`);
  return value;
}

function optionalNumber(form: URLSearchParams, name: string): number | undefined {
  return text(form, name) === undefined ? undefined : number(form, name);
}
