import type { ProxyConfiguration } from 'nango';
import { createSync } from 'nango';
import { z } from 'zod';

const Issue = z.object({
  id: z.string(),
  title: z.string(),
  state: z.enum(['open', 'closed']),
  labels: z.array(z.string()),
  parent: z.string().nullable(),
});
type Issue = z.infer<typeof Issue>;
interface Answer {
  id: number;
  title: string;
  state: string;
  labels: { name: string }[];
}

const sync = createSync({
  description: 'Issues of a repository, newest change first.',
  frequency: 'every day',
  models: { Issue },
  metadata: z.object({ owner: z.string(), repo: z.string() }),
  exec: async (nango) => {
    const { owner, repo } = await nango.getMetadata();
    const config: ProxyConfiguration = {
      endpoint: `/repos/${owner}/${repo}/issues`,
      params: { state: 'all', sort: 'updated' },
      paginate: {
        type: 'link',
        limit: 100,
        limit_name_in_request: 'per_page',
        link_rel_in_response_header: 'next',
      },
    };
    for await (const page of nango.paginate<Answer>(config)) {
      const issues: Issue[] = page.map((issue) => ({
        id: String(issue.id),
        title: issue.title,
        state: issue.state === 'open' ? 'open' : 'closed',
        labels: issue.labels.map(({ name }) => name),
        parent: null,
      }));
      await nango.batchSave(issues, 'Issue');
    }
  },
});

export type Local = Parameters<(typeof sync)['exec']>[0];
export default sync;
