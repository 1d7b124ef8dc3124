import {
  Alert,
  Badge,
  Button,
  Card,
  Group,
  NumberInput,
  type NumberInputProps,
  Stack,
  Switch,
  Text,
  Title,
} from '@mantine/core';
import { useForm } from '@mantine/form';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import { FormDialog } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { IconAlertTriangle, IconHourglassLow, IconPlus } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { Page } from '../../ui/Page.tsx';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { counted } from '../../ui/size.ts';
import { IntegrationSelect } from '../integrations/IntegrationSelect.tsx';
import { integrationsQuery } from '../integrations/queries.ts';
import { BackLink, GuideLink } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { useChange } from '../use-change.ts';
import { type Policy, policiesQuery, removePolicy, setPolicy } from './queries.ts';

/** The retention policies of the environment and of integrations. */
export function RetentionPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const policies = useQuery(policiesQuery(environment));
  const { data: integrations = [] } = useQuery(integrationsQuery(environment));
  const [editing, setEditing] = useState<Policy | 'new'>();
  const [leaving, setLeaving] = useState<Policy>();
  const remove = useChange((policy: Policy) => removePolicy(environment, policy.integration_id), {
    stale: [policiesQuery(environment).queryKey],
  });
  const placeOf = ({ integration_id: key }: Policy) =>
    key === null
      ? 'Every other integration'
      : (integrations.find(({ integration_id }) => integration_id === key)?.display_name ?? key);
  const add = (
    <Button leftSection={<IconPlus size={16} />} onClick={() => setEditing('new')}>
      Add a policy
    </Button>
  );
  return (
    <Page
      title="Retention"
      about={
        <>
          Rules that prune or remove records by age. The policy of an integration replaces the policy of the
          environment. <GuideLink to="retention" />
        </>
      }
      before={
        <BackLink to="/$environment/records" params={{ environment }}>
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
              title="No retention policy"
              action={mayWrite && add}
            >
              Without a policy, records are kept. A policy prunes payloads and removes deleted records after
              the number of days that you choose.
            </EmptyState>
          ) : (
            <Stack>
              {found.map((policy) => (
                <Card key={policy.integration_id ?? ''}>
                  <Group justify="space-between" align="flex-start" wrap="wrap">
                    <Stack gap={6} flex="1 1 280px" miw={0}>
                      <Group gap={6}>
                        <Title order={2} className="wrap">
                          {placeOf(policy)}
                        </Title>
                        {policy.integration_id !== null && (
                          <Badge color="gray">{policy.integration_id}</Badge>
                        )}
                      </Group>
                      {wordsOf(policy).map((sentence) => (
                        <Text key={sentence} size="sm" maw={720}>
                          {sentence}
                        </Text>
                      ))}
                      <Dimmed>
                        Set <RelativeTime at={policy.updated_at} />
                      </Dimmed>
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
          policy={editing === 'new' ? undefined : editing}
          taken={(policies.data ?? []).map(({ integration_id: key }) => key)}
          integrations={integrations}
          onClose={() => setEditing(undefined)}
        />
      )}
      <Confirm
        title="Remove this policy?"
        act="Remove policy"
        given={leaving}
        mutation={remove}
        onClose={() => setLeaving(undefined)}
      >
        <Text>
          <b>{leaving && placeOf(leaving)}</b>:{' '}
          {leaving?.integration_id === null
            ? 'records are no longer removed by age.'
            : 'the policy of the environment applies, if there is one.'}{' '}
          Removed records are not restored.
        </Text>
      </Confirm>
    </Page>
  );
}

/** The fields of a policy that its description uses. */
type PolicyTerms = {
  prune_after_days: number | null;
  remove_tombstones_after_days: number | null;
  wait_for_consumers: boolean;
};

/** A policy as sentences, pruning first. */
export function wordsOf({
  prune_after_days: prune,
  remove_tombstones_after_days: remove,
  wait_for_consumers: waits,
}: PolicyTerms): string[] {
  if (prune === null && remove === null) return ['No records are removed by age.'];
  const words: string[] = [];
  if (prune !== null) {
    words.push(
      `Payloads are pruned ${counted(prune, 'day')} after the last change of their record. IDs, times and cursors remain; a payload is only restored when its record is saved again.`,
    );
  }
  if (remove !== null) {
    words.push(
      `Records that were deleted more than ${counted(remove, 'day')} ago are removed completely. A client that reads changes less often must start again.`,
    );
  }
  words.push(
    waits
      ? 'Records are kept until every consumer of their dataset has read them, except consumers without an acknowledgement for 30 days.'
      : 'It does not wait for consumers: a consumer that has not read a record in time misses it.',
  );
  return words;
}

/** Represents the environment in the list of integrations; no integration has this ID. */
const everywhere = '*';

/** Sets a policy, and describes its effect while the user edits it. */
function PolicyDialog({
  policy,
  taken,
  integrations,
  onClose,
}: {
  /** Undefined for a new policy. */
  policy: Policy | undefined;
  /** The integrations that have a policy; null is the environment. */
  taken: (string | null)[];
  integrations: { integration_id: string; display_name: string }[];
  onClose: () => void;
}) {
  const environment = useEnvironment();
  const isFree = (place: string | null) => policy !== undefined || !taken.includes(place);
  const free = integrations.filter(({ integration_id: key }) => isFree(key));
  const others = isFree(null) ? [{ value: everywhere, label: 'Every other integration' }] : [];
  const first = others[0]?.value ?? free[0]?.integration_id ?? null;
  const form = useForm<Values>({
    initialValues: {
      place: policy === undefined ? first : (policy.integration_id ?? everywhere),
      pruneAfter: policy === undefined ? 30 : (policy.prune_after_days ?? ''),
      removeAfter: policy?.remove_tombstones_after_days ?? '',
      waits: policy?.wait_for_consumers ?? true,
    },
  });
  const terms = termsOf(form.values);
  const { place } = form.values;
  const doesNothing = terms.prune_after_days === null && terms.remove_tombstones_after_days === null;
  const save = useChange(
    () =>
      setPolicy(environment, {
        ...terms,
        ...(place !== null && place !== everywhere && { integration_id: place }),
      }),
    { stale: [policiesQuery(environment).queryKey], after: onClose },
  );
  return (
    <FormDialog
      title={policy === undefined ? 'Add a policy' : 'Edit the policy'}
      size="lg"
      act="Set the policy"
      attempt={save}
      button={{ color: 'red', disabled: doesNothing || place === null }}
      isDirty={form.isDirty()}
      onClose={onClose}
      onSubmit={form.onSubmit(() => save.mutate())}
    >
      <IntegrationSelect
        label="For"
        integrations={free}
        others={others}
        allowDeselect={false}
        disabled={policy !== undefined}
        {...form.getInputProps('place')}
      />
      <Group align="flex-start">
        <Days label="Prune payloads after" {...form.getInputProps('pruneAfter')} />
        <Days label="Remove deleted records after" {...form.getInputProps('removeAfter')} />
      </Group>
      <Switch
        label="Wait for consumers"
        description="Records that a consumer has not read yet are kept"
        {...form.getInputProps('waits', { type: 'checkbox' })}
      />
      <Alert
        color={doesNothing ? 'gray' : 'orange'}
        icon={<IconAlertTriangle size={18} />}
        title={doesNothing ? 'Enter at least one number of days' : 'Effect of this policy'}
      >
        <Stack gap={6} aria-live="polite">
          {!doesNothing &&
            wordsOf(terms).map((sentence) => (
              <Text key={sentence} size="sm">
                {sentence}
              </Text>
            ))}
          {!doesNothing && (
            <Text size="sm" fw={600}>
              The policy is applied within minutes. This cannot be undone.
            </Text>
          )}
        </Stack>
      </Alert>
    </FormDialog>
  );
}

function Days(props: NumberInputProps) {
  return (
    <NumberInput
      min={1}
      max={36_500}
      allowDecimal={false}
      suffix=" days"
      placeholder="never"
      flex="1 1 200px"
      {...props}
    />
  );
}

/** An empty field means "never". */
type Values = { place: string | null; pruneAfter: number | ''; removeAfter: number | ''; waits: boolean };

function termsOf({ pruneAfter, removeAfter, waits }: Values): PolicyTerms {
  return {
    prune_after_days: pruneAfter === '' ? null : pruneAfter,
    remove_tombstones_after_days: removeAfter === '' ? null : removeAfter,
    wait_for_consumers: waits,
  };
}
