import { Badge, Button, Card, Group, Stack, Text, Title } from '@mantine/core';
import { IconHourglassLow, IconPlus } from '@tabler/icons-react';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { BackLink } from '../../ui/BackLink.tsx';
import { Confirm } from '../../ui/Confirm.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { integrationsQuery } from '../integrations/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { PolicyDialog } from './PolicyDialog.tsx';
import { wordsOf } from './policy-words.ts';
import { type Policy, policiesQuery, removePolicy } from './queries.ts';

/** What goes by age, in the environment and in single integrations. */
export function RetentionPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const policies = useQuery(policiesQuery(environment));
  const { data: integrations = [] } = useQuery(integrationsQuery(environment));
  const [editing, setEditing] = useState<Policy | 'new'>();
  const [leaving, setLeaving] = useState<Policy>();
  const queries = useQueryClient();
  const remove = useMutation({
    mutationFn: (policy: Policy) => removePolicy(environment, policy.provider_config_key),
    onSuccess: () => queries.invalidateQueries({ queryKey: policiesQuery(environment).queryKey }),
  });
  const placeOf = ({ provider_config_key: key }: Policy) =>
    key === null
      ? 'Every other integration'
      : (integrations.find(({ unique_key }) => unique_key === key)?.display_name ?? key);
  const add = (
    <Button leftSection={<IconPlus size={16} />} onClick={() => setEditing('new')}>
      Add a policy
    </Button>
  );
  return (
    <Page
      title="Retention"
      about="Which records are pruned or removed by age. An integration's own policy replaces the environment's."
      before={
        <BackLink link={(props) => <Link to="/$environment/records" params={{ environment }} {...props} />}>
          Records
        </BackLink>
      }
      actions={mayWrite && policies.data !== undefined && policies.data.length > 0 && add}
    >
      <Loaded query={policies} loading={<LoadingRows rows={2} height={150} />}>
        {(found) =>
          found.length === 0 ? (
            <EmptyState
              icon={<IconHourglassLow size={26} />}
              title="Everything is kept"
              action={mayWrite && add}
            >
              Without a policy nothing goes by age. With one, payloads are pruned and old deletions forgotten
              after the days you choose.
            </EmptyState>
          ) : (
            <Stack>
              {found.map((policy) => (
                <Card key={policy.provider_config_key ?? ''}>
                  <Group justify="space-between" align="flex-start" wrap="wrap">
                    <Stack gap={6} flex="1 1 280px" miw={0}>
                      <Group gap={6}>
                        <Title order={2} className="wrap">
                          {placeOf(policy)}
                        </Title>
                        {policy.provider_config_key !== null && (
                          <Badge color="gray">{policy.provider_config_key}</Badge>
                        )}
                      </Group>
                      {wordsOf(policy).map((sentence) => (
                        <Text key={sentence} size="sm" maw={720}>
                          {sentence}
                        </Text>
                      ))}
                      <Text size="sm" c="dimmed">
                        Set <RelativeTime at={policy.updated_at} />
                      </Text>
                    </Stack>
                    {mayWrite && (
                      <Group gap="xs">
                        <Button variant="default" size="sm" onClick={() => setEditing(policy)}>
                          Edit
                        </Button>
                        <Button variant="subtle" color="red" size="sm" onClick={() => setLeaving(policy)}>
                          Remove
                        </Button>
                      </Group>
                    )}
                  </Group>
                </Card>
              ))}
            </Stack>
          )
        }
      </Loaded>
      {editing !== undefined && (
        <PolicyDialog
          environment={environment}
          policy={editing === 'new' ? undefined : editing}
          taken={(policies.data ?? []).map(({ provider_config_key: key }) => key)}
          integrations={integrations}
          onClose={() => setEditing(undefined)}
        />
      )}
      <Confirm
        title="Remove this policy?"
        act="Remove it"
        given={leaving}
        mutation={remove}
        onClose={() => setLeaving(undefined)}
      >
        <Text>
          <b>{leaving && placeOf(leaving)}</b>:{' '}
          {leaving?.provider_config_key === null
            ? 'from now on nothing goes by age there.'
            : 'from now on the policy of the environment counts, where there is one.'}{' '}
          What is gone stays gone.
        </Text>
      </Confirm>
    </Page>
  );
}
