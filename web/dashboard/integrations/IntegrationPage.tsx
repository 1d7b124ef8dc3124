import { Alert, Anchor, Badge, Button, Grid, Group, Stack } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconAlertTriangle, IconChevronLeft, IconPlugConnected } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { Logo } from '../../ui/Logo.tsx';
import { Page } from '../../ui/Page.tsx';
import { ConnectDialog } from '../connections/ConnectDialog.tsx';
import { connectionsQuery } from '../connections/queries.ts';
import { useEnvironment } from '../shell/environment.ts';
import { useMayWrite } from '../sign-in/queries.ts';
import { CredentialsCard } from './CredentialsCard.tsx';
import { DeleteIntegration } from './DeleteIntegration.tsx';
import { GoogleGuide } from './GoogleGuide.tsx';
import { integrationQuery, providerQuery } from './queries.ts';
import { UsageCard } from './UsageCard.tsx';

export function IntegrationPage() {
  const environment = useEnvironment();
  const mayWrite = useMayWrite();
  const { key } = useParams({ from: '/$environment/integrations/of/$key' });
  const [isOpen, { open, close }] = useDisclosure();
  const query = useQuery(integrationQuery(environment, key));
  const provider = useQuery({
    ...providerQuery(environment, query.data?.provider ?? ''),
    enabled: query.data !== undefined,
  });
  const connections = useQuery(connectionsQuery(environment, { integrationId: key, limit: 2000 }));
  const { data: integration } = query;
  const isGoogle = integration?.provider.startsWith('google') === true;
  return (
    <Page
      title={integration?.display_name ?? key}
      before={
        <Anchor
          size="sm"
          c="dimmed"
          renderRoot={(props) => <Link to="/$environment/integrations" params={{ environment }} {...props} />}
        >
          <Group gap={4} mb={6}>
            <IconChevronLeft size={14} /> Integrations
          </Group>
        </Anchor>
      }
      about={
        integration && (
          <Group gap="xs" mt={4}>
            <Logo src={integration.logo} name={integration.display_name} size={24} />
            <Badge color="gray">{integration.unique_key}</Badge>
            {integration.test && <Badge color="violet">test credentials</Badge>}
          </Group>
        )
      }
      actions={
        mayWrite &&
        integration && (
          <Button leftSection={<IconPlugConnected size={16} />} onClick={open}>
            Add a test connection
          </Button>
        )
      }
    >
      <Loaded query={query}>
        {(loaded) => (
          <Stack gap="lg">
            {loaded.fault && (
              <Alert
                color="red"
                icon={<IconAlertTriangle size={18} />}
                title={loaded.fault.cause.replaceAll('_', ' ')}
              >
                {loaded.fault.next_step}
              </Alert>
            )}
            {provider.isError && <FaultNotice error={provider.error} />}
            <Grid gap="lg">
              <Grid.Col span={{ base: 12, lg: isGoogle && !loaded.test ? 6 : 7 }}>
                <Stack gap="lg">
                  {provider.data && (
                    <CredentialsCard
                      key={loaded.updated_at}
                      environment={environment}
                      integration={loaded}
                      provider={provider.data}
                      mayWrite={mayWrite}
                    />
                  )}
                  <UsageCard environment={environment} integration={key} connections={connections} />
                </Stack>
              </Grid.Col>
              <Grid.Col span={{ base: 12, lg: isGoogle && !loaded.test ? 6 : 5 }}>
                {isGoogle && provider.data && <GoogleGuide provider={provider.data} />}
              </Grid.Col>
            </Grid>
            {mayWrite && (
              <DeleteIntegration
                environment={environment}
                integration={key}
                connections={connections.data?.connections.length ?? 0}
              />
            )}
          </Stack>
        )}
      </Loaded>
      <ConnectDialog environment={environment} integration={key} isOpen={isOpen} onClose={close} />
    </Page>
  );
}
