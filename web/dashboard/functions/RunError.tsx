import { Accordion, Alert, Code, Spoiler, Stack, Text } from '@mantine/core';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { IconAlertTriangle } from '../../ui/icons.tsx';
import { sentence } from '../../ui/words.ts';
import { AnchorLink, connectionPage, functionPage } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { type Advice, adviceOn, heldText, stackOf, thrownWith } from './advice.ts';
import { type FunctionType, isOver, type Run } from './queries.ts';

/** The error of a run and the next step. For a run that will be retried, the error of the last attempt. */
export function RunError({ run, type, mayWrite }: { run: Run; type: FunctionType; mayWrite: boolean }) {
  const { error, state } = run;
  if (error === null) return null;
  const advice = adviceOn(run);
  const stack = mayWrite ? stackOf(run) : undefined;
  const isHeld = error.code === 'mass_delete_held';
  // The text of a held deletion has its numbers.
  const thrown = mayWrite && !isHeld ? thrownWith(run) : undefined;
  const isTriedAgain = !isOver(run);
  return (
    <Alert
      color={isTriedAgain ? 'yellow' : state === 'cancelled' ? 'gray' : 'red'}
      icon={<IconAlertTriangle size={18} />}
      title={isTriedAgain ? 'The last attempt failed. The run is retried.' : titleOf(error.code)}
      role="alert"
    >
      <Stack gap="xs" align="flex-start">
        {/* Code may throw a very long text. */}
        <Spoiler maxHeight={130} showLabel="Show more" hideLabel="Show less">
          <Text size="sm" className="broken">
            {isHeld ? heldText(error.message) : error.message}
          </Text>
        </Spoiler>
        {advice !== undefined && !isTriedAgain && (
          <Text size="sm">
            {advice.text} <WhereTo advice={advice} run={run} type={type} />
          </Text>
        )}
        {isHeld && (
          <Accordion w="100%" variant="contained">
            <Accordion.Item value="api">
              <Accordion.Control>Allow the deletion with the API</Accordion.Control>
              <Accordion.Panel>
                <Text size="sm" className="broken">
                  {error.message}
                </Text>
              </Accordion.Panel>
            </Accordion.Item>
          </Accordion>
        )}
        {thrown !== undefined && (
          <Code block tabIndex={0} className="broken" aria-label="Payload" w="100%" mah={220}>
            {thrown}
          </Code>
        )}
        {stack !== undefined && (
          <Code block tabIndex={0} className="broken" aria-label="Stack" w="100%" mah={220}>
            {stack}
          </Code>
        )}
        <Dimmed ff="monospace">
          {error.code} · {run.id}
        </Dimmed>
      </Stack>
    </Alert>
  );
}

/** `function_timeout` → "Function timeout"; codes such as `ERR_NETWORK` have their own titles. */
function titleOf(code: string): string {
  if (code === 'mass_delete_held') return 'Deletion held';
  if (code === 'function_threw') return 'The code threw an error';
  if (code === 'action_error') return 'The action threw an error on purpose';
  if (code === 'ERR_BAD_REQUEST' || code === 'ERR_BAD_RESPONSE') return 'The provider refused a call';
  return sentence(code.toLowerCase().replace(/^err_/, ''));
}

function WhereTo({ advice, run, type }: { advice: Advice; run: Run; type: FunctionType }) {
  const environment = useEnvironment();
  const { integration_id: integration, connection_id: id, function: name } = run;
  if (advice.leadsTo === 'code') {
    return (
      <AnchorLink
        inherit
        c="inherit"
        underline="always"
        {...functionPage(environment, { integration, type, name })}
        search={{ tab: 'code', version: run.version }}
      >
        Open the code
      </AnchorLink>
    );
  }
  if (advice.leadsTo === undefined || id === null) return null;
  const looks = { inherit: true, c: 'inherit', underline: 'always' } as const;
  if (advice.leadsTo === 'activity') {
    return (
      <AnchorLink
        {...looks}
        to="/$environment/activity"
        params={{ environment }}
        search={{ integration, connection: id, status: 'failed' }}
      >
        Open the activity
      </AnchorLink>
    );
  }
  const isOfRecords = advice.leadsTo === 'records';
  return (
    <AnchorLink
      {...looks}
      {...connectionPage(environment, { integration, id }, isOfRecords ? 'records' : undefined)}
    >
      {isOfRecords ? 'Open the records' : 'Open the connection'}
    </AnchorLink>
  );
}
