import type { Project } from '../clients.ts';
import type { ControlParts } from '../control/parts.ts';
import { type Html, html } from '../html.ts';
import { andMore, form, options, SHOWN, section, type View } from './parts.ts';

/** The projects with their clients, and who may consent to them. */
export function appsSection({ clients }: ControlParts, view: View): Html {
  const projects = clients.listProjects();
  const clientIds = (project: Project) =>
    clients
      .list()
      .filter(({ projectNumber }) => projectNumber === project.number)
      .map(({ clientId }) => clientId);
  return section(
    {
      id: 'apps',
      title: 'Apps',
      text: 'An external app in testing takes its test users alone, and their refresh tokens die after seven days. Production lifts that for new tokens.',
    },
    html`<div class="cards">${projects
      .slice(0, SHOWN)
      .map((project) =>
        projectCard(project, { clientIds: clientIds(project), view }),
      )}</div>${andMore(projects.length)}`,
  );
}

function projectCard(project: Project, by: { clientIds: string[]; view: View }): Html {
  const { number, name, audience, domain = '', publishing, testUsers } = project;
  const isNarrow = audience === 'internal' || publishing === 'testing';
  const shown = by.clientIds.slice(0, 5);
  return html`<div class="card"><div class="head"><b>${name}</b><span class="tag${isNarrow && ' bad'}">${
    audience === 'internal' ? `internal to ${domain}` : publishing
  }</span><small>project ${number} · ${by.clientIds.length === 1 ? 'one client' : `${by.clientIds.length} clients`}</small></div>
${shown.map((clientId) => html`<small><code>${clientId}</code></small><br>`)}
${form(
  { act: 'project', view: by.view, className: 'fields', fixed: { project_number: number } },
  (typed) => html`<label>Audience<select name="audience">${options(
    [
      ['external', 'external'],
      ['internal', 'internal'],
    ],
    typed('audience', audience),
  )}</select></label>
<label>Workspace domain<input type="text" name="domain" value="${typed('domain', domain)}" maxlength="200" placeholder="of an internal app"></label>
<label>Publishing<select name="publishing">${options(
    [
      ['production', 'production'],
      ['testing', 'testing'],
    ],
    typed('publishing', publishing),
  )}</select></label>
<label class="grow">Test users<input type="text" name="test_users" value="${typed('test_users', testUsers.join(', '))}" placeholder="addresses, separated by commas"></label>
<button class="button">Save</button>`,
)}</div>`;
}
