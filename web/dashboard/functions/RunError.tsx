import { Accordion, Alert, Anchor, Code, Spoiler, Stack, Text } from '@mantine/core';
import { IconAlertTriangle } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { sentence } from '../../ui/words.ts';
import { type Advice, adviceOn, heldText, stackOf, thrownWith } from './advice.ts';
import { FunctionLink } from './FunctionLink.tsx';
import { type FunctionType, isOver, type Run } from './queries.ts';

/** What a run failed by, and what to do. Of one that will be tried again it is the last attempt's. */
export function RunError({
  environment,
  run,
  type,
  mayWrite,
}: {
  environment: string;
  run: Run;
  type: FunctionType;
  mayWrite: boolean;
}) {
  const { error, state } = run;
  if (error === null) return null;
  const advice = adviceOn(run);
  const stack = mayWrite ? stackOf(run) : undefined;
  const isHeld = error.code === 'mass_delete_held';
  // The numbers of a held deletion stand in its text.
  const thrown = mayWrite && !isHeld ? thrownWith(run) : undefined;
  const isTriedAgain = !isOver(run);
  return (
    <Alert
      color={isTriedAgain ? 'yellow' : state === 'cancelled' ? 'gray' : 'red'}
      icon={<IconAlertTriangle size={18} />}
      title={isTriedAgain ? 'The last attempt failed; it is tried again' : titleOf(error.code)}
      role="alert"
    >
      <Stack gap="xs" align="flex-start">
        {/* Code may throw a page of text. */}
        <Spoiler maxHeight={130} showLabel="Show all of it" hideLabel="Show less">
          <Text size="sm" className="broken">
            {isHeld ? heldText(error.message) : error.message}
          </Text>
        </Spoiler>
        {advice !== undefined && !isTriedAgain && (
          <Text size="sm">
            {advice.text} <WhereTo advice={advice} environment={environment} run={run} type={type} />
          </Text>
        )}
        {isHeld && (
          <Accordion w="100%" variant="contained">
            <Accordion.Item value="api">
              <Accordion.Control>By the API</Accordion.Control>
              <Accordion.Panel>
                <Text size="sm" className="broken">
                  {error.message}
                </Text>
              </Accordion.Panel>
            </Accordion.Item>
          </Accordion>
        )}
        {thrown !== undefined && (
          <Code block tabIndex={0} className="broken" aria-label="What came with it" w="100%" mah={220}>
            {thrown}
          </Code>
        )}
        {stack !== undefined && (
          <Code block tabIndex={0} className="broken" aria-label="The stack" w="100%" mah={220}>
            {stack}
          </Code>
        )}
        <Text size="sm" c="dimmed" ff="monospace">
          {error.code} · {run.id}
        </Text>
      </Stack>
    </Alert>
  );
}

/** `function_timeout` → "Function timeout"; a code such as `ERR_NETWORK` says little in words. */
function titleOf(code: string): string {
  if (code === 'mass_delete_held') return 'Deletion held';
  if (code === 'function_threw') return 'The code threw an error';
  if (code === 'action_error') return 'The action threw an error on purpose';
  if (code === 'ERR_BAD_REQUEST' || code === 'ERR_BAD_RESPONSE') return 'The provider refused a call';
  return sentence(code.toLowerCase().replace(/^err_/, ''));
}

function WhereTo({
  advice,
  environment,
  run,
  type,
}: {
  advice: Advice;
  environment: string;
  run: Run;
  type: FunctionType;
}) {
  const { provider_config_key: integration, connection_id: id, function: name } = run;
  if (advice.leadsTo === 'code') {
    return (
      <Anchor
        inherit
        c="inherit"
        underline="always"
        renderRoot={(looks) => (
          <FunctionLink
            environment={environment}
            at={{ integration, type, name }}
            search={{ tab: 'code', version: run.version }}
            {...looks}
          />
        )}
      >
        To the code
      </Anchor>
    );
  }
  if (advice.leadsTo === undefined || id === null) return null;
  const looks = { inherit: true, c: 'inherit', underline: 'always' } as const;
  if (advice.leadsTo === 'activity') {
    return (
      <Anchor
        {...looks}
        renderRoot={(props) => (
          <Link
            to="/$environment/activity"
            params={{ environment }}
            search={{ integration, connection: id, status: 'failed' }}
            {...props}
          />
        )}
      >
        To the activity
      </Anchor>
    );
  }
  const to =
    advice.leadsTo === 'records'
      ? '/$environment/records/of/$integration/$id'
      : '/$environment/connections/$integration/$id';
  return (
    <Anchor
      {...looks}
      renderRoot={(props) => <Link to={to} params={{ environment, integration, id }} {...props} />}
    >
      {advice.leadsTo === 'records' ? 'To the records' : 'To the connection'}
    </Anchor>
  );
}
