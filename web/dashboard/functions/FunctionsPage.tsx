import { Button, Modal, Tabs } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconCloudUpload } from '@tabler/icons-react';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { Page } from '../../ui/Page.tsx';
import { TabRow } from '../../ui/TabRow.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { DeployHelp } from './DeployHelp.tsx';
import { FunctionsTab } from './FunctionsTab.tsx';
import { RunsList } from './RunsList.tsx';

export function FunctionsPage() {
  const environment = useEnvironment();
  const search = useSearch({ from: '/$environment/functions' });
  const navigate = useNavigate({ from: '/$environment/functions' });
  const [isOpen, { open, close }] = useDisclosure();
  const { tab = 'deployed' } = search;
  return (
    <Page
      title="Functions"
      about="Your code that runs here: syncs fill the cache of records, actions answer calls, event functions follow what happens to connections."
      actions={
        <Button variant="default" leftSection={<IconCloudUpload size={16} />} onClick={open}>
          How to deploy
        </Button>
      }
    >
      <Tabs
        value={tab}
        keepMounted={false}
        onChange={(next) => void navigate({ search: next === 'runs' ? { tab: 'runs' } : {} })}
      >
        <TabRow open={tab}>
          <Tabs.Tab value="deployed">Deployed</Tabs.Tab>
          <Tabs.Tab value="runs">Runs</Tabs.Tab>
        </TabRow>
        <Tabs.Panel value="deployed">
          <FunctionsTab />
        </Tabs.Panel>
        <Tabs.Panel value="runs">
          <RunsList
            environment={environment}
            of={undefined}
            search={search}
            onChange={(next) =>
              void navigate({
                search: (former) => ({ ...former, cursor: undefined, ...next }),
                replace: true,
              })
            }
            older={(cursor, looks) => (
              <Link
                to="/$environment/functions"
                params={{ environment }}
                search={{ ...search, cursor }}
                {...looks}
              />
            )}
          />
        </Tabs.Panel>
      </Tabs>
      <Modal
        opened={isOpen}
        onClose={close}
        title="How to deploy"
        size="lg"
        closeButtonProps={{ 'aria-label': 'Close' }}
      >
        <DeployHelp environment={environment} />
      </Modal>
    </Page>
  );
}
